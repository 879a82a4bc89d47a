"""Compiled steps of a decoder: rows of few tokens, and prompts in panels."""

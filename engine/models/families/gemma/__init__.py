"""Gemma generations."""

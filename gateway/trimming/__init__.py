"""Strategies that shorten prompts, and the parts of a prompt that none of them changes."""

"""Completions: reading, merging and replaying upstream answers."""

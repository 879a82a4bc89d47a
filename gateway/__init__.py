"""Penstock: an async LLM gateway."""

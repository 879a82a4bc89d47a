"""Evaluation of the bundled models on held-out prompts."""

"""Sampling: choice of tokens from logits, grammars and log probabilities."""

"""Speculative decoding: when to draft, how much to verify, and what is accepted."""

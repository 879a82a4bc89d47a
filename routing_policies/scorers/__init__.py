"""Scorers: each gives every remaining candidate a score in [0, 1]; higher is better."""

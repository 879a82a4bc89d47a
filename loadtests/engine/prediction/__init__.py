"""Predictions of answers: a stream of support questions, and what near misses among them are worth."""

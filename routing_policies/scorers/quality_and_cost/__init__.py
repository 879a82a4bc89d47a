"""Scorers by predicted quality and by price."""

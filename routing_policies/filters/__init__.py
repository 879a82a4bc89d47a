"""Filters: each returns the reason why a candidate cannot take an attempt, or None."""

"""Filters: each says why a candidate cannot take this attempt, or nothing."""

"""Pickers: one choice out of the totals."""

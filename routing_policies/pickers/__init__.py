"""Pickers: each chooses one candidate by the totals."""

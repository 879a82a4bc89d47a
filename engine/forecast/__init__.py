"""Forecasts of step time, step cost and output length."""

"""Compiled matrix products and elementwise arithmetic on a CPU."""

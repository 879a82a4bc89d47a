"""Compiled attention on a CPU."""

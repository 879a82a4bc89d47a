"""Compiled steps of few tokens on a CPU: one native function for a step, without a framework's cost per operation."""

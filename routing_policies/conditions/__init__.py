"""Conditions of routes: a bounded subset of CEL, checked when the policy is loaded and compiled once."""

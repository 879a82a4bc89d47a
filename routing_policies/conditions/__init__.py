"""Conditions of routes: a bounded part of CEL, checked when the policy is loaded, compiled once."""

"""Supervision of a gateway whose public port several worker processes serve."""

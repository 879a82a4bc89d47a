"""Construct discovery: its sources, and what the rest of the process learns of them."""

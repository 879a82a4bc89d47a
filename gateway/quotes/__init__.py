"""Quotes: a signed bound of the time to first token, the permit that is reserved with it, and what then happened."""

"""Proposers of draft tokens: n-gram lookup, Medusa heads and a draft model."""

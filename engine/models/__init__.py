"""Decoder-only models: configuration, loading, layers and families."""

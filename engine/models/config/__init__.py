"""Checkpoint configuration and files: parsing of `config.json` and access to weights."""

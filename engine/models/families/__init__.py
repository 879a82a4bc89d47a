"""Supported model families: each module reads the traits of one family's `config.json`."""

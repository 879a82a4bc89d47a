"""The semantic tier: the lookup of entries whose question means the same."""

"""The vector index of the semantic tier, in memory and in a file."""

"""The assembly of one gateway process from its parts."""

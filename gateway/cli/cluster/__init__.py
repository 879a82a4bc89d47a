"""Commands for clusters that run engines."""

"""Settings of one gateway process: sources, fields and checks."""

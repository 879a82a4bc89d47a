"""Client of the core process: its connection, supervision and the requests under way."""

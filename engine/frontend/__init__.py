"""Front process of the engine: HTTP, text and the connection to the core."""

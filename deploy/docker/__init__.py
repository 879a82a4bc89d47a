"""Images: one file for the gateway, one for the engine."""

"""API keys in the store, admins with their sessions and tokens, and the log of every change."""

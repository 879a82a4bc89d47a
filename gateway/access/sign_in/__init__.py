"""Logging in to the admin page: passwords, sessions, identity providers, and limits on guessing."""

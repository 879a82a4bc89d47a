"""Handlers of sign-in: by password, by identity provider, and by what the machine's own user has."""

"""Forwarding: a request's attempts, and the relay of the answer."""

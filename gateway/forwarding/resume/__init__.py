"""Streams that go on at another deployment: what is known of one, and the request that continues it."""

"""Recall notices: whoever received a similar answer that proved wrong is notified, exactly once for each request."""

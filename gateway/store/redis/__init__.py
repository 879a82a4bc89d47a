"""The store in Redis: one server, a primary behind Sentinels, or a Cluster."""

"""Routing: policy revisions over live deployments, and the choice for each attempt."""

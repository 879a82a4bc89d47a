"""Handlers of the admin API, one module for each resource."""

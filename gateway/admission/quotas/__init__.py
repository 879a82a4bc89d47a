"""Quotas: tenants' limits, shared by all replicas through the store."""

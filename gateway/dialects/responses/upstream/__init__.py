"""Deployments that speak the Responses API."""

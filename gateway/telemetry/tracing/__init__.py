"""Traces of requests, exported as OTLP spans."""

"""Tests of `gateway.cli.workers`."""

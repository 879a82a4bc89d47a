"""Tests of `gateway.machine`."""

"""Tests of `penstock policy outcomes`."""

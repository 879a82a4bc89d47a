"""Tests of `loadtests.workers`."""

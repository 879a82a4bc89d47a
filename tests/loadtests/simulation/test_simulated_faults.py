"""Thousands of seeds of lost, late, reordered and cancelled events, each of which can be repeated alone."""

from __future__ import annotations

import os

import pytest

from tests.loadtests.bench import bench

NUM_SEEDS = int(os.environ.get("PENSTOCK_FAULT_SEEDS", "2000"))
"""Seeds of one run of this test; `make nightly` takes 100,000 others."""


@pytest.mark.timeout(540)
def test_no_seed_leaves_anything_behind_or_gives_a_byte_to_another_tenant() -> None:
    result = bench("simulate", "--scenario", "faults", "--seeds", str(NUM_SEEDS))
    assert result["seeds"] == NUM_SEEDS
    assert result["cross_tenant_responses"] == 0
    assert result["requests"] > 5 * NUM_SEEDS
    assert result["upstream_attempts"] > 4 * NUM_SEEDS

"""Thousands of seeds of lost, late, reordered and cancelled events, each of which can be repeated alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
NUM_SEEDS = int(os.environ.get("PENSTOCK_FAULT_SEEDS", "2000"))
"""Of a run; many more at night."""


def simulate(*flags: object) -> dict[str, Any]:
    """The result of `penstock bench simulate --scenario faults`."""
    command = [sys.executable, "-m", "loadtests", "simulate", "--scenario", "faults", *map(str, flags)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(max(300, NUM_SEEDS))
def test_no_seed_leaves_anything_behind_or_gives_a_byte_to_another_tenant() -> None:
    result = simulate("--seeds", NUM_SEEDS)
    assert result["seeds"] == NUM_SEEDS
    assert result["cross_tenant_responses"] == 0
    assert result["requests"] > 5 * NUM_SEEDS
    assert result["upstream_attempts"] > 4 * NUM_SEEDS

"""Thousands of aborts in every state leave nothing behind: no row, no block, no sequence."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from tests.engine.core.abort_storm import AbortStorm
from tests.engine.core.tiny_core import TinyCore

NUM_ABORTS = int(os.environ.get("PENSTOCK_TEST_ABORTS", "2000"))
"""10,000 before a release: `PENSTOCK_TEST_ABORTS=10000 pytest tests/engine/core/test_abort_storm.py`."""


def test_random_aborts_leave_every_block_free(checkpoint: Path) -> None:
    core = TinyCore(checkpoint, num_blocks=32, budget=48, rows=8)
    storm = AbortStorm(core, Random(20))
    storm.run(NUM_ABORTS)
    assert {state for state, count in storm.aborted.items() if count > 10} == {
        "queued",
        "prefill",
        "decode",
        "preempted",
    }
    assert core.num_leaked == 0
    assert core.blocks.num_free == core.blocks.num_blocks
    assert not core.scheduler.has_work

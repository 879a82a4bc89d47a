"""Rows in half precision: what is given back is memory, and what is kept stays as it was."""

from __future__ import annotations

import numpy as np

from gateway.cache.index.half_rows import HalfRows
from loadtests.harness.measures import resident_bytes

DIMENSIONS = 384
NUM_ROWS = 70_000
"""More than one block."""
ROW_BYTES = 2 * DIMENSIONS


def test_rows_that_are_given_back_leave_memory_and_the_others_stay() -> None:
    rows, values = HalfRows(DIMENSIONS), np.random.default_rng(1).random((1000, DIMENSIONS), np.float32)
    for _ in range(NUM_ROWS // len(values)):
        rows.append(values)
    before = resident_bytes()
    kept = 30_001
    for begin in range(NUM_ROWS, kept, -997):
        rows.give_back(begin)
    rows.give_back(kept)
    given = before - resident_bytes()
    assert given > 0.9 * (NUM_ROWS - kept) * ROW_BYTES
    for place in (0, 29_999, kept - 1):
        np.testing.assert_allclose(rows.row(place), values[place % 1000], atol=1e-3)
    assert not rows.take(np.arange(kept + 10, NUM_ROWS, 501)).any()
    rows.give_back(0)
    assert rows.num_kept == 0
    assert before - resident_bytes() > 0.95 * NUM_ROWS * ROW_BYTES

"""Rows in half precision come back from any block, in memory and from a file."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

from gateway.cache.index import half_rows
from gateway.cache.index.half_rows import HalfRows

DIMENSIONS = 6


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_rows, "_BLOCK_ROWS", 8)
    monkeypatch.setattr(half_rows, "_ROWS_AT_ONCE", 4)


@pytest.mark.parametrize("pieces", [[1] * 21, [21], [7, 1, 1, 12], [8, 8, 5]])
def test_rows_are_where_they_were_put_however_they_came(pieces: list[int]) -> None:
    matrix = np.random.default_rng(1).standard_normal((21, DIMENSIONS)).astype(np.float16).astype(np.float32)
    rows, begin = HalfRows(DIMENSIONS), 0
    for size in pieces:
        rows.append(matrix[begin : begin + size])
        begin += size
    assert len(rows) == 21
    np.testing.assert_array_equal(rows.take(np.array([0, 7, 8, 9, 16, 20])), matrix[[0, 7, 8, 9, 16, 20]])
    assert rows.take(np.array([], np.int64)).shape == (0, DIMENSIONS)
    np.testing.assert_array_equal([rows.row(place) for place in range(21)], matrix)


def test_the_nearest_of_some_rows_come_best_first_with_their_cosine() -> None:
    rows = HalfRows(2)
    rows.append(np.array([[1, 0], [0, 1], [0.6, 0.8], [-1, 0]] * 5, np.float32))
    query = np.array([0, 1], np.float32)
    assert rows.nearest(query, np.array([0, 2, 19]), 2) == [(pytest.approx(0.8, abs=1e-3), 2), (0.0, 0)]
    assert rows.nearest(query, np.array([17]), 2) == [(1.0, 17)]
    assert rows.nearest(query, np.array([], np.int64), 2) == []


@pytest.mark.parametrize("num_rows", [0, 1, 8, 21])
def test_what_was_written_is_read(num_rows: int) -> None:
    matrix, rows, file = np.arange(num_rows * DIMENSIONS, dtype=np.float32).reshape(-1, DIMENSIONS), None, BytesIO()
    rows = HalfRows(DIMENSIONS)
    rows.append(matrix)
    rows.write(file.write)
    assert file.tell() == 2 * num_rows * DIMENSIONS
    file.seek(0)
    again = HalfRows.read(file.read, DIMENSIONS, num_rows)
    np.testing.assert_array_equal(again.take(np.arange(num_rows)), matrix)

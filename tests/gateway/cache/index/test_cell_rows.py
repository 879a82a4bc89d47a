"""Cells: what is in them is found, wherever it lies and whatever was removed around it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.cache.index.cell_rows import CellRows
from gateway.cache.index.cell_training import CellTraining
from loadtests.cache.vector_source import Drawn

DIMENSIONS = 64
NUM_ROWS = 12_000
NUM_ASKED = 300


def made(sample: NDArray[np.float32], num_rows: int) -> CellRows:
    training = CellTraining(sample, num_rows)
    while (index := training.step()) is None:
        pass
    return CellRows(index, num_rows)


def put(cells: CellRows, rows: NDArray[np.float32], name: bytes = b"%d") -> None:
    exacts = [name % number for number in range(len(rows))]
    for place, exact in enumerate(exacts, cells.append(exacts, rows)):
        cells.settle(exact, place)


def share_found(cells: CellRows, queries: NDArray[np.float32], rows: NDArray[np.float32], living: set[int]) -> float:
    """Of the queries, that have what is nearest to them of the living rows found first."""
    cosines = queries @ rows.T
    cosines[:, [number not in living for number in range(len(rows))]] = -2
    best = [b"%d" % number for number in cosines.argmax(axis=1)]
    return float(np.mean([cells.nearest(query, 2)[0][1] == each for query, each in zip(queries, best, strict=True)]))


@pytest.fixture(scope="module", params=[1, 600], ids=["about one topic", "about many topics"])
def drawn(request: pytest.FixtureRequest) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows, and queries near the first of them."""
    source = Drawn(DIMENSIONS, request.param, 1)
    rows = source.block(0, NUM_ROWS)
    return rows, source.near(rows[:NUM_ASKED], np.random.default_rng(2))


def test_the_nearest_is_found_before_and_after_most_are_removed(
    drawn: tuple[NDArray[np.float32], NDArray[np.float32]],
) -> None:
    rows, queries = drawn
    cells = made(rows[::2], NUM_ROWS)
    put(cells, rows)
    living = set(range(NUM_ROWS))
    assert share_found(cells, queries, rows, living) >= 0.99
    for keep in (3000, 400, 40, 1):
        for number in range(keep, NUM_ROWS):
            assert cells.remove(b"%d" % number) == (number in living)
        living = set(range(keep))
        assert (len(cells), cells.num_dead) == (keep, NUM_ROWS - keep)
        assert share_found(cells, queries[:keep], rows, living) >= 0.99


def test_rows_about_what_the_sample_knew_nothing_of_are_found() -> None:
    source, other = Drawn(DIMENSIONS, 200, 3), Drawn(DIMENSIONS, 200, 4)
    cells, rows = made(source.block(0, 5000), 5000), other.block(0, 10_000)
    put(cells, rows)
    queries = other.near(rows[:NUM_ASKED], np.random.default_rng(5))
    assert share_found(cells, queries, rows, set(range(len(rows)))) >= 0.99


def test_cells_are_outgrown_by_many_times_the_rows_they_were_made_for() -> None:
    rows = Drawn(16, 10, 6).block(0, 4000)
    cells = made(rows, 4000)
    put(cells, rows)
    assert not cells.is_outgrown
    for part in range(3):
        put(cells, rows, b"%%d of %d" % part)
    assert not cells.is_outgrown
    put(cells, rows[:1], b"%d more")
    assert cells.is_outgrown


def test_cells_without_rows_find_nothing() -> None:
    cells = made(np.zeros((0, DIMENSIONS), np.float32), 0)
    assert cells.nearest(np.ones(DIMENSIONS, np.float32), 2) == []
    assert len(cells.sample(10)) == 0


@pytest.mark.parametrize("dimensions", [15, 33])
def test_an_odd_number_of_dimensions_will_do(dimensions: int) -> None:
    rows = Drawn(dimensions, 5, 7).block(0, 500)
    cells = made(rows, 500)
    put(cells, rows)
    assert [cells.nearest(row, 1)[0][1] for row in rows[:50]] == [b"%d" % number for number in range(50)]

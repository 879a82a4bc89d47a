"""Segments: what is in them is found, wherever it lies and whatever was removed around it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.cache.index.segment import IndexSegment, merge_segments
from loadtests.cache.vector_source import Drawn

DIMENSIONS = 64
NUM_ROWS = 12_000
NUM_QUERIES = 300


def flat(rows: NDArray[np.float32], first: int = 0) -> IndexSegment:
    return IndexSegment.flat({exact_of(first + number): row for number, row in enumerate(rows)})


def exact_of(number: int) -> bytes:
    """Ids of one length that end with zero bytes."""
    return number.to_bytes(4, "little")


def merge(*sources: IndexSegment, flat_rows: int = 0) -> IndexSegment:
    index, ids, _ = merge_segments(sources, [source.living() for source in sources], flat_rows)
    return IndexSegment(index, ids, np.ones(len(ids), np.bool_))


def share_found(
    segment: IndexSegment, queries: NDArray[np.float32], rows: NDArray[np.float32], living: NDArray[np.bool_]
) -> float:
    """Return the share of queries whose nearest living row is found first."""
    cosines = np.where(living, queries @ rows.T, -2)
    best = [exact_of(number) for number in cosines.argmax(axis=1).tolist()]
    return float(np.mean([segment.nearest(query, 2)[0][1] == each for query, each in zip(queries, best, strict=True)]))


@pytest.fixture(scope="module", params=[1, 600], ids=["about one topic", "about many topics"])
def drawn(request: pytest.FixtureRequest) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows, and queries near the first of them."""
    source = Drawn(DIMENSIONS, request.param, 1)
    rows = source.block(0, NUM_ROWS)
    return rows, source.near(rows[:NUM_QUERIES], np.random.default_rng(2))


def test_the_nearest_is_found_before_and_after_most_are_removed(
    drawn: tuple[NDArray[np.float32], NDArray[np.float32]],
) -> None:
    rows, queries = drawn
    segment = merge(*(flat(rows[begin : begin + 3000], begin) for begin in range(0, NUM_ROWS, 3000)))
    assert not segment.is_flat
    living = np.ones(NUM_ROWS, np.bool_)
    assert share_found(segment, queries, rows, living) >= 0.99
    for keep in (3000, 400, 40, 1):
        for number in range(keep, NUM_ROWS):
            assert segment.remove(exact_of(number)) == bool(living[number])
        living[keep:] = False
        assert (segment.num_living, len(segment), segment.is_worn) == (keep, NUM_ROWS, True)
        assert share_found(segment, queries[:keep], rows, living) >= 0.99
    assert segment.remove(exact_of(0))
    assert segment.nearest(queries[0], 2) == []


def test_a_flat_segment_misses_nothing_and_forgets_what_was_removed() -> None:
    rows = Drawn(DIMENSIONS, 5, 3).block(0, 500)
    segment = flat(rows)
    assert [segment.nearest(row, 1)[0][1] for row in rows] == [exact_of(number) for number in range(500)]
    for number in range(0, 500, 2):
        assert segment.remove(exact_of(number))
        assert not segment.remove(exact_of(number))
    assert {segment.nearest(row, 1)[0][1][0] % 2 for row in rows} == {1}
    assert segment.nearest(rows[1], 1)[0][0] == pytest.approx(1.0, abs=1e-5)
    assert len(segment.nearest(rows[1], 1000)) == 250


def test_a_merge_leaves_removed_rows_out_and_keeps_vectors() -> None:
    rows = Drawn(DIMENSIONS, 5, 4).block(0, 600)
    first, second = flat(rows[:300]), flat(rows[300:], 300)
    first.remove(exact_of(7))
    for flat_rows in (0, 1000):
        segment = merge(first, second, flat_rows=flat_rows)
        assert segment.is_flat == (flat_rows > 0)
        assert set(segment.exacts()) == {exact_of(number) for number in range(600)} - {exact_of(7)}
        for row, exact in enumerate(segment.exacts()):
            vector = segment.vectors(np.array([row]))[0]
            np.testing.assert_allclose(vector, rows[int.from_bytes(exact, "little")], atol=1e-3)


def test_a_merge_of_rows_that_are_all_removed_is_empty() -> None:
    segment = flat(Drawn(DIMENSIONS, 5, 5).block(0, 3))
    for number in range(3):
        segment.remove(exact_of(number))
    assert merge(segment).nearest(np.ones(DIMENSIONS, np.float32), 2) == []

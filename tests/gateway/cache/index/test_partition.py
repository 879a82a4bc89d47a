"""A partition's segments: what is due to be merged, and what takes whose place."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.cache.index import partition as module
from gateway.cache.index.partition import Partition
from gateway.cache.index.segment import IndexSegment, merge_segments

DIMENSIONS = 16
FLAT_ROWS = 100


@pytest.fixture(autouse=True)
def _few_recent_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECENT_ROWS", 10)


class Grown:
    """A partition that is merged by hand."""

    def __init__(self) -> None:
        self.partition = Partition(FLAT_ROWS)
        self._rng = np.random.default_rng(1)
        self._num = 0

    def add(self, count: int) -> None:
        for _ in range(count):
            vector = self._rng.standard_normal(DIMENSIONS).astype(np.float32)
            self.partition.add(b"%d" % self._num, vector / np.linalg.norm(vector))
            self._num += 1

    def merge(self, sources: list[IndexSegment]) -> None:
        index, ids, _ = merge_segments(sources, [source.living() for source in sources], FLAT_ROWS)
        self.partition.replace(sources, IndexSegment(index, ids, np.ones(len(ids), np.bool_)))

    def settle(self) -> None:
        while sources := self.partition.due():
            self.merge(sources)

    @property
    def sizes(self) -> list[int]:
        return sorted(len(segment) for segment in self.partition.segments if not segment.is_flat)


def test_recent_rows_become_a_segment_once_there_are_enough() -> None:
    grown = Grown()
    grown.add(9)
    assert (len(grown.partition.recent), grown.partition.segments) == (9, [])
    grown.add(1)
    assert (len(grown.partition.recent), len(grown.partition.segments), len(grown.partition)) == (0, 1, 10)
    assert b"9" in grown.partition
    assert b"10" not in grown.partition


def test_many_flat_segments_become_one() -> None:
    grown = Grown()
    grown.add(80)
    assert grown.partition.due() == []
    grown.add(10)
    assert len(grown.partition.due()) == 9
    grown.settle()
    assert [(len(segment), segment.is_flat) for segment in grown.partition.segments] == [(90, True)]
    assert grown.partition.is_quick


def test_five_segments_of_one_size_become_one_of_the_next() -> None:
    grown, sizes = Grown(), []
    for _ in range(6):
        grown.add(110)
        grown.settle()
        sizes.append(grown.sizes)
    assert sizes == [[110], [110] * 2, [110] * 3, [110] * 4, [550], [110, 550]]
    assert not grown.partition.is_quick


def test_a_worn_segment_is_written_again_alone() -> None:
    grown = Grown()
    for _ in range(2):
        grown.add(110)
        grown.settle()
    for number in range(27):
        assert grown.partition.remove(b"%d" % number)
    assert grown.partition.due() == []
    assert grown.partition.remove(b"27")
    assert not grown.partition.remove(b"27")
    (worn,) = grown.partition.due()
    assert (len(worn), worn.num_living) == (110, 82)
    grown.settle()
    assert grown.sizes == [110]
    assert len(grown.partition) == 192


def test_segments_without_living_rows_leave() -> None:
    grown = Grown()
    grown.add(110)
    grown.settle()
    for number in range(110):
        grown.partition.remove(b"%d" % number)
    assert not grown.partition.is_quick, "its memory is not given back yet"
    grown.settle()
    assert (grown.partition.segments, grown.partition.is_quick) == ([], True)

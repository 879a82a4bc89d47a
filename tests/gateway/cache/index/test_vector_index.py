"""The index beside a model that compares with everything, through any order of changes, moves and snapshots."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numpy.typing import NDArray

from gateway.cache.index.segment import merge_segments
from gateway.cache.index.snapshot import load_vectors, save_vectors
from gateway.cache.index.vector_index import Neighbour, VectorIndex

DIMENSIONS = 16
A, B = b"context a", b"context b"


def unit(rng: np.random.Generator, count: int | None = None) -> NDArray[np.float32]:
    drawn = rng.standard_normal((count or 1, DIMENSIONS)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn if count else drawn[0]


def made(**options: int) -> VectorIndex:
    return VectorIndex(DIMENSIONS, "test", **options)


def settle(index: VectorIndex) -> None:
    while index.compact():
        pass


def ids(found: list[Neighbour]) -> list[bytes]:
    return [neighbour.exact for neighbour in found]


class IndexMachine(RuleBasedStateMachine):
    """Two contexts, few ids, so that they are replaced and removed often; segments of a few rows, cells from 20 on."""

    @initialize(seed=st.integers(0, 1000), flat_rows=st.sampled_from([0, 20, 1000]))
    def begin(self, seed: int, flat_rows: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.index = made(flat_rows=flat_rows)
        self.model: dict[tuple[bytes, bytes], NDArray[np.float32]] = {}

    @rule(number=st.integers(0, 60), context=st.sampled_from([A, B]))
    def add(self, number: int, context: bytes) -> None:
        exact, vector = b"%d" % number, unit(self.rng)
        self.index.add(context, exact, vector)
        self.model[context, exact] = vector

    @rule(count=st.integers(1, 30), context=st.sampled_from([A, B]))
    def add_many(self, count: int, context: bytes) -> None:
        for _ in range(count):
            self.add(int(self.rng.integers(0, 60)), context)

    @rule(number=st.integers(0, 60), context=st.sampled_from([A, B]))
    def remove(self, number: int, context: bytes) -> None:
        self.index.remove(context, b"%d" % number)
        self.model.pop((context, b"%d" % number), None)

    @rule()
    def compact(self) -> None:
        self.index.compact()

    @rule()
    def settle(self) -> None:
        settle(self.index)
        assert not self.index.needs_compaction

    @rule()
    def save_and_load(self) -> None:
        before = self.index
        with tempfile.TemporaryDirectory() as folder:
            save_vectors(before, Path(folder) / "vectors")
            self.index = load_vectors(Path(folder) / "vectors", "test", DIMENSIONS)

    @rule(context=st.sampled_from([A, B]), count=st.integers(1, 5))
    def search(self, context: bytes, count: int) -> None:
        vector = unit(self.rng)
        found = self.index.nearest(context, vector, count)
        cosines = {exact: float(row @ vector) for (where, exact), row in self.model.items() if where == context}
        expected = sorted(cosines.values(), reverse=True)[:count]
        assert [neighbour.similarity for neighbour in found] == pytest.approx(expected, abs=2e-3)
        for neighbour in found:
            assert neighbour.similarity == pytest.approx(cosines[neighbour.exact], abs=2e-3)
        assert len(set(ids(found))) == len(found)

    @invariant()
    def agrees(self) -> None:
        assert len(self.index) == len(self.model)
        assert self.index.num_contexts >= len({context for context, _ in self.model})
        for context in (A, B):
            for exact in (b"%d" % number for number in range(0, 61, 7)):
                assert self.index.contains(context, exact) == ((context, exact) in self.model)


@pytest.fixture(autouse=True)
def _few_recent_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let segments be made of a few rows each."""
    monkeypatch.setattr("gateway.cache.index.partition.RECENT_ROWS", 8)


IndexMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestIndexMachine = IndexMachine.TestCase


def test_an_entry_of_another_context_is_never_near() -> None:
    index, vector = made(), unit(np.random.default_rng(1))
    index.add(A, b"mine", vector)
    index.add(B, b"theirs", vector)
    assert ids(index.nearest(A, vector, 5)) == [b"mine"]
    assert index.nearest(b"context c", vector, 5) == []


def test_neighbours_come_best_first_with_their_cosine() -> None:
    index, rng = made(), np.random.default_rng(2)
    vector, other = unit(rng), unit(rng)
    index.add(A, b"far", other)
    index.add(A, b"same", vector)
    best, second = index.nearest(A, vector)
    assert (best.exact, second.exact) == (b"same", b"far")
    assert best.similarity == pytest.approx(1.0, abs=1e-6)
    assert second.similarity == pytest.approx(float(vector @ other), abs=1e-6)


def test_no_cosine_is_above_one() -> None:
    index, rng = made(flat_rows=0), np.random.default_rng(3)
    rows = unit(rng, 200)
    for number, row in enumerate(rows):
        index.add(A, b"%d" % number, row)
    settle(index)
    assert all(index.nearest(A, row, 1)[0].similarity <= 1.0 for row in rows)


def test_an_id_has_one_place_in_its_context_however_often_it_is_added() -> None:
    index, rng = made(), np.random.default_rng(4)
    first, second = unit(rng), unit(rng)
    index.add(A, b"id", first)
    index.add(A, b"id", second)
    found = index.nearest(A, second, 5)
    assert ids(found) == [b"id"]
    assert found[0].similarity == pytest.approx(1.0, abs=1e-6)
    index.add(B, b"id", first)
    index.remove(A, b"id")
    assert index.nearest(A, second, 5) == []
    assert (len(index), index.num_contexts) == (1, 1)


def test_an_added_vector_is_copied() -> None:
    index, vector = made(), unit(np.random.default_rng(5))
    requested = vector.copy()
    index.add(A, b"id", vector)
    vector[:] = 0
    assert index.nearest(A, requested, 1)[0].similarity == pytest.approx(1.0, abs=1e-6)


def test_removing_what_is_not_there_is_nothing() -> None:
    index = made()
    index.remove(A, b"unknown")
    assert (len(index), index.num_changes) == (0, 0)


def test_a_vector_of_other_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a vector of 16 dimensions"):
        made().add(A, b"id", np.zeros(3, np.float32))


def filled(index: VectorIndex, rows: NDArray[np.float32]) -> None:
    for number, row in enumerate(rows):
        index.add(A, b"%d" % number, row)


def test_a_context_that_grew_large_is_no_longer_quick_and_still_finds() -> None:
    index, rows = made(flat_rows=600), unit(np.random.default_rng(6), 900)
    filled(index, rows[:600])
    settle(index)
    assert index.is_quick(A)
    for number, row in enumerate(rows[600:], 600):
        index.add(A, b"%d" % number, row)
        index.compact()
    settle(index)
    assert not index.is_quick(A)
    assert index.is_quick(B)
    assert [ids(index.nearest(A, row, 1))[0] for row in rows] == [b"%d" % number for number in range(900)]


def test_removed_rows_leave_their_segments_in_the_end() -> None:
    index, rows = made(flat_rows=100), unit(np.random.default_rng(7), 4000)
    filled(index, rows)
    settle(index)
    for number in range(3000):
        index.remove(A, b"%d" % number)
    settle(index)
    assert all(len(segment) - segment.num_living <= max(4, len(segment) / 4) for _, segment in index.segments())
    assert len(index) == 1000
    assert ids(index.nearest(A, rows[3500], 1)) == [b"3500"]
    assert not set(ids(index.nearest(A, rows[5], 20))) & {b"%d" % number for number in range(3000)}


def test_segments_with_cells_are_merged_in_tiers() -> None:
    index, rows = made(flat_rows=50), unit(np.random.default_rng(10), 3000)
    most = 0
    for number, row in enumerate(rows):
        index.add(A, b"%d" % number, row)
        while index.compact():
            pass
        if number % 100 == 0:
            most = max(most, len(index.segments()))
    sizes = [len(segment) for _, segment in index.segments() if not segment.is_flat]
    assert 1000 < max(sizes) < 2000, "segments stop growing at 25 times the flat rows"
    assert most < 25
    assert all(ids(index.nearest(A, rows[number], 1)) == [b"%d" % number] for number in range(0, 3000, 20))


def test_a_merge_never_holds_more_than_its_sources_twice() -> None:
    index, rows = made(flat_rows=100), unit(np.random.default_rng(11), 3000)
    filled(index, rows)
    settle(index)
    for number in range(0, 3000, 3):
        index.remove(A, b"%d" % number)
    largest = max(len(segment) for _, segment in index.segments())
    before = sum(len(segment) for _, segment in index.segments())
    while index.compact():
        held = sum(len(segment) for _, segment in index.segments())
        assert held <= before
        assert before - held <= largest
        before = held
        assert ids(index.nearest(A, rows[1], 1)) == [b"1"]
    assert len(index) == 2000


def test_large_segments_that_nobody_needs_are_given_back_in_the_background() -> None:
    index = made(flat_rows=100)
    filled(index, unit(np.random.default_rng(12), 1000))
    settle(index)
    for number in range(1000):
        index.remove(A, b"%d" % number)
    assert (len(index), index.num_contexts, index.needs_compaction) == (0, 1, True)
    assert index.nearest(A, unit(np.random.default_rng(1)), 2) == []
    settle(index)
    assert (index.num_contexts, index.needs_compaction) == (0, False)


def test_what_is_removed_and_added_during_a_merge_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    index, rows = made(flat_rows=100), unit(np.random.default_rng(13), 300)
    filled(index, rows[:200])
    settle(index)

    def changed(*arguments: object) -> object:
        found = merge_segments(*arguments)  # type: ignore[arg-type]
        index.remove(A, b"5")
        index.add(A, b"6", rows[250])
        index.add(A, b"new", rows[251])
        return found

    filled(index, rows[:199])
    monkeypatch.setattr("gateway.cache.index.vector_index.merge_segments", changed)
    assert index.compact()
    monkeypatch.undo()
    settle(index)
    assert (index.contains(A, b"5"), len(index)) == (False, 200)
    assert ids(index.nearest(A, rows[250], 1)) == [b"6"]
    assert ids(index.nearest(A, rows[251], 1)) == [b"new"]
    assert index.nearest(A, rows[6], 1)[0].exact != b"6"


def test_a_context_that_was_emptied_and_filled_again_during_a_merge_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    index, rows = made(), unit(np.random.default_rng(14), 100)

    def emptied(*arguments: object) -> object:
        found = merge_segments(*arguments)  # type: ignore[arg-type]
        for number in range(100):
            index.remove(A, b"%d" % number)
        index.add(A, b"new", rows[0])
        return found

    filled(index, rows)
    monkeypatch.setattr("gateway.cache.index.vector_index.merge_segments", emptied)
    assert index.compact()
    assert ids(index.nearest(A, rows[0], 2)) == [b"new"]
    assert (len(index), index.num_contexts) == (1, 1)


def test_a_merge_ends_soon_when_the_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    index, rows = made(flat_rows=100), unit(np.random.default_rng(15), 300)
    filled(index, rows)
    before = [len(segment) for _, segment in index.segments()]

    def stopped(sources: object, living: object, flat_rows: object, is_stopped: Callable[[], bool]) -> object:
        index.end_compaction()
        return merge_segments(sources, living, flat_rows, is_stopped)  # type: ignore[arg-type]

    monkeypatch.setattr("gateway.cache.index.vector_index.merge_segments", stopped)
    assert not index.compact()
    assert not index.needs_compaction
    assert not index.compact()
    assert [len(segment) for _, segment in index.segments()] == before
    assert ids(index.nearest(A, rows[7], 1)) == [b"7"]


def test_a_snapshot_from_between_two_merges_is_whole(tmp_path: Path) -> None:
    index, rows = made(flat_rows=100), unit(np.random.default_rng(13), 3000)
    filled(index, rows)
    settle(index)
    for number in range(1000):
        index.remove(A, b"%d" % number)
    index.compact()
    save_vectors(index, tmp_path / "vectors")
    again = load_vectors(tmp_path / "vectors", "test", DIMENSIONS)
    settle(again)
    assert len(again) == 2000
    assert all(ids(again.nearest(A, rows[number], 1)) == [b"%d" % number] for number in range(1000, 3000, 20))


def test_many_dead_neighbours_do_not_hide_a_living_one() -> None:
    index, rng = made(flat_rows=500), np.random.default_rng(8)
    centre = unit(rng)
    for number in range(4000):
        index.add(A, b"%d" % number, near(rng, centre, 0.01 if number < 900 else 2.0))
    index.add(A, b"living", near(rng, centre, 0.3))
    settle(index)
    for number in range(900):
        index.remove(A, b"%d" % number)
    assert ids(index.nearest(A, centre, 1)) == [b"living"]


def near(rng: np.random.Generator, centre: NDArray[np.float32], distance: float) -> NDArray[np.float32]:
    moved: NDArray[np.float32] = centre + distance * unit(rng)
    moved /= np.linalg.norm(moved)
    return moved


def test_threads_that_add_remove_search_and_move_at_once_leave_it_consistent() -> None:
    index, stop = made(flat_rows=50), Event()
    failures: list[BaseException] = []
    stored = unit(np.random.default_rng(9), 40)
    for number, row in enumerate(stored):
        index.add(A, b"kept %d" % number, row)

    def guarded(work: object, seed: int) -> None:
        try:
            assert callable(work)
            work(np.random.default_rng(seed))
        except BaseException as error:
            failures.append(error)
            stop.set()

    def write(rng: np.random.Generator) -> None:
        for number in range(1500):
            index.add((A, B)[number % 2], b"%d" % rng.integers(0, 200), unit(rng))
            index.remove((A, B)[number % 2], b"%d" % rng.integers(0, 200))

    def search(rng: np.random.Generator) -> None:
        while not stop.is_set():
            number = int(rng.integers(0, 40))
            assert ids(index.nearest(A, stored[number], 1)) == [b"kept %d" % number]

    def move(rng: np.random.Generator) -> None:
        while not stop.is_set():
            index.compact()

    writers = [Thread(target=guarded, args=(write, seed)) for seed in (1, 2)]
    others = [Thread(target=guarded, args=(work, 3)) for work in (search, move)]
    for thread in (*writers, *others):
        thread.start()
    for thread in writers:
        thread.join(120)
    stop.set()
    for thread in others:
        thread.join(120)
    assert failures == []
    settle(index)
    assert sum(segment.num_living for _, segment in index.segments()) == len(index)
    assert all(index.contains(A, b"kept %d" % number) for number in range(40))

"""The index beside a model that compares with everything, through any order of changes, moves and snapshots."""

from __future__ import annotations

import tempfile
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numpy.typing import NDArray

from gateway.cache.index.vector_index import Neighbour, VectorIndex
from gateway.cache.index.vector_snapshot import load_vectors, save_vectors

DIMENSIONS = 16
A, B = b"context a", b"context b"


def unit(rng: np.random.Generator, count: int | None = None) -> NDArray[np.float32]:
    drawn = rng.standard_normal((count or 1, DIMENSIONS)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn if count else drawn[0]


def made(**options: int) -> VectorIndex:
    return VectorIndex(DIMENSIONS, "test", **options)


def settle(index: VectorIndex) -> None:
    while index.move(64):
        pass


def ids(found: list[Neighbour]) -> list[bytes]:
    return [neighbour.exact for neighbour in found]


class IndexMachine(RuleBasedStateMachine):
    """Two contexts, few ids, so that they are replaced and removed often; graphs from a dozen rows on."""

    @initialize(seed=st.integers(0, 1000), cells_from=st.sampled_from([0, 12, 1000]))
    def begin(self, seed: int, cells_from: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.index = made(cells_from=cells_from, tail_rows=4)
        self.model: dict[bytes, tuple[bytes, NDArray[np.float32]]] = {}

    @rule(number=st.integers(0, 60), context=st.sampled_from([A, B]))
    def add(self, number: int, context: bytes) -> None:
        exact, vector = b"%d" % number, unit(self.rng)
        self.index.add(context, exact, vector)
        self.model[exact] = (context, vector)

    @rule(count=st.integers(1, 30), context=st.sampled_from([A, B]))
    def add_many(self, count: int, context: bytes) -> None:
        for _ in range(count):
            self.add(int(self.rng.integers(0, 60)), context)

    @rule(number=st.integers(0, 60))
    def remove(self, number: int) -> None:
        self.index.remove(b"%d" % number)
        self.model.pop(b"%d" % number, None)

    @rule(num_rows=st.integers(1, 20))
    def move(self, num_rows: int) -> None:
        assert self.index.move(num_rows) <= num_rows

    @rule()
    def settle(self) -> None:
        settle(self.index)
        assert not self.index.needs_moving

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
        kept = {exact: float(row @ vector) for exact, (where, row) in self.model.items() if where == context}
        expected = sorted(kept.values(), reverse=True)[:count]
        assert [neighbour.similarity for neighbour in found] == pytest.approx(expected, abs=2e-3)
        for neighbour in found:
            assert neighbour.similarity == pytest.approx(kept[neighbour.exact], abs=2e-3)
        assert len(set(ids(found))) == len(found)

    @invariant()
    def agrees(self) -> None:
        assert len(self.index) == len(self.model)
        assert self.index.num_contexts == len({context for context, _ in self.model.values()})
        for exact in (b"%d" % number for number in range(0, 61, 7)):
            assert (exact in self.index) == (exact in self.model)
            vector = self.index.vector(exact)
            assert (vector is None) == (exact not in self.model)
            if vector is not None:
                np.testing.assert_allclose(vector, self.model[exact][1], atol=1e-3)


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
    index, rng = made(cells_from=0), np.random.default_rng(3)
    rows = unit(rng, 200)
    for number, row in enumerate(rows):
        index.add(A, b"%d" % number, row)
    settle(index)
    assert all(index.nearest(A, row, 1)[0].similarity <= 1.0 for row in rows)


def test_an_id_has_one_place_however_often_it_is_added() -> None:
    index, rng = made(), np.random.default_rng(4)
    first, second = unit(rng), unit(rng)
    index.add(A, b"id", first)
    index.add(A, b"id", second)
    found = index.nearest(A, second, 5)
    assert ids(found) == [b"id"]
    assert found[0].similarity == pytest.approx(1.0, abs=1e-6)
    index.add(B, b"id", first)
    assert index.nearest(A, second, 5) == []
    assert (len(index), index.num_contexts) == (1, 1)


def test_an_added_vector_is_copied() -> None:
    index, vector = made(), unit(np.random.default_rng(5))
    asked = vector.copy()
    index.add(A, b"id", vector)
    vector[:] = 0
    assert index.nearest(A, asked, 1)[0].similarity == pytest.approx(1.0, abs=1e-6)


def test_removing_what_is_not_there_is_nothing() -> None:
    index = made()
    index.remove(b"unknown")
    assert (len(index), index.num_changes) == (0, 0)


def test_a_vector_of_other_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a vector of 16 dimensions"):
        made().add(A, b"id", np.zeros(3, np.float32))


def test_a_context_that_grew_large_is_no_longer_quick_and_still_finds() -> None:
    index, rng = made(cells_from=600, tail_rows=50), np.random.default_rng(6)
    rows = unit(rng, 900)
    for number, row in enumerate(rows[:600]):
        index.add(A, b"%d" % number, row)
    assert index.is_quick(A)
    assert not index.needs_moving
    for number, row in enumerate(rows[600:], 600):
        index.add(A, b"%d" % number, row)
        index.move(1)
    settle(index)
    assert not index.is_quick(A)
    assert index.is_quick(B)
    assert [ids(index.nearest(A, row, 1))[0] for row in rows] == [b"%d" % number for number in range(900)]


def test_removed_rows_leave_the_graph_in_the_end() -> None:
    index, rng = made(cells_from=100, tail_rows=50), np.random.default_rng(7)
    rows = unit(rng, 4000)
    for number, row in enumerate(rows):
        index.add(A, b"%d" % number, row)
    settle(index)
    for number in range(3000):
        index.remove(b"%d" % number)
    settle(index)
    (_, shelf), *_ = index.shelves()
    assert [cells.num_dead for cells in shelf.cells] == [0]
    assert len(index) == 1000
    assert ids(index.nearest(A, rows[3500], 1)) == [b"3500"]
    assert not set(ids(index.nearest(A, rows[5], 20))) & {b"%d" % number for number in range(3000)}


def test_cells_are_made_anew_when_there_are_four_times_as_many_rows() -> None:
    index, rng = made(cells_from=200, tail_rows=50), np.random.default_rng(10)
    rows = unit(rng, 2000)
    made_for = []
    for begin, end in ((0, 300), (300, 700), (700, 2000)):
        for number in range(begin, end):
            index.add(A, b"%d" % number, rows[number])
        settle(index)
        ((_, shelf),) = index.shelves()
        made_for.append([cells.made_for for cells in shelf.cells])
    assert made_for == [[300], [300], [2000]]
    assert all(ids(index.nearest(A, rows[number], 1)) == [b"%d" % number] for number in range(0, 2000, 20))


def test_two_sets_of_cells_never_stand_side_by_side() -> None:
    index, rng = made(cells_from=100, tail_rows=50), np.random.default_rng(11)
    rows = unit(rng, 6000)
    for number, row in enumerate(rows):
        index.add(A, b"%d" % number, row)
    settle(index)
    for number in range(0, 6000, 3):
        index.remove(b"%d" % number)
    ((_, shelf),) = index.shelves()
    held = []
    while index.move(64):
        held.append(sum(cells.num_held for cells in shelf.cells))
        number = len(held) % 2000 * 3 + 1
        assert ids(index.nearest(A, rows[number], 1)) == [b"%d" % number]
    assert max(held) <= 6000 + 64
    assert held[-1] == 4000


def test_cells_that_nobody_needs_are_given_back_beside_the_event_loop() -> None:
    index, rng = made(cells_from=100, tail_rows=50), np.random.default_rng(12)
    for number, row in enumerate(unit(rng, 1000)):
        index.add(A, b"%d" % number, row)
    settle(index)
    ((_, shelf),) = index.shelves()
    (cells,) = shelf.cells
    for number in range(1000):
        index.remove(b"%d" % number)
    assert (index.num_contexts, index.needs_moving, cells.num_held) == (0, True, len(cells.exacts))
    settle(index)
    assert (index.needs_moving, cells.num_held, len(cells.exacts)) == (False, 0, 0)
    assert shelf.nearest(unit(rng), 2) == []


def test_a_snapshot_from_the_middle_of_a_move_is_whole(tmp_path: Path) -> None:
    index, rng = made(cells_from=100, tail_rows=50), np.random.default_rng(13)
    rows = unit(rng, 3000)
    for number, row in enumerate(rows):
        index.add(A, b"%d" % number, row)
    settle(index)
    for number in range(1000):
        index.remove(b"%d" % number)
    ((_, shelf),) = index.shelves()
    while len(shelf.cells) < 2 or shelf.cells[0].num_held > 1500:
        index.move(64)
    save_vectors(index, tmp_path / "vectors")
    again = load_vectors(tmp_path / "vectors", "test", DIMENSIONS)
    settle(again)
    assert len(again) == 2000
    assert all(ids(again.nearest(A, rows[number], 1)) == [b"%d" % number] for number in range(1000, 3000, 20))


def test_many_dead_neighbours_do_not_hide_a_living_one() -> None:
    index, rng = made(cells_from=0, tail_rows=0), np.random.default_rng(8)
    centre = unit(rng)
    for number in range(4000):
        index.add(A, b"%d" % number, near(rng, centre, 0.01 if number < 900 else 2.0))
    index.add(A, b"living", near(rng, centre, 0.3))
    settle(index)
    for number in range(900):
        index.remove(b"%d" % number)
    assert not index.needs_moving
    assert ids(index.nearest(A, centre, 1)) == [b"living"]


def near(rng: np.random.Generator, centre: NDArray[np.float32], distance: float) -> NDArray[np.float32]:
    moved: NDArray[np.float32] = centre + distance * unit(rng)
    moved /= np.linalg.norm(moved)
    return moved


def test_threads_that_add_remove_search_and_move_at_once_leave_it_consistent() -> None:
    index, stop = made(cells_from=50, tail_rows=20), Event()
    failures: list[BaseException] = []
    kept = unit(np.random.default_rng(9), 40)
    for number, row in enumerate(kept):
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
            index.remove(b"%d" % rng.integers(0, 200))

    def search(rng: np.random.Generator) -> None:
        while not stop.is_set():
            number = int(rng.integers(0, 40))
            assert ids(index.nearest(A, kept[number], 1)) == [b"kept %d" % number]

    def move(rng: np.random.Generator) -> None:
        while not stop.is_set():
            index.move(3)

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
    found = sum(len(shelf) for _, shelf in index.shelves())
    assert found == len(index)
    assert all(index.vector(exact) is not None for exact in (b"kept %d" % number for number in range(40)))

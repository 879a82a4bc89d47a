"""Partition: the vectors of one context, in a matrix while they are few, in cells once they are many.

    add ──▶ flat ──a handful at a time──▶ cells ──when a quarter is dead, or they are too few──▶ next cells

Rows change places under a lock, and a search looks in all places: so an index grows from flat to cells, and cells shed
their removed rows, while it is searched and changed. What takes long in cells, to search them and to add to them, has a
lock of its own, for which nobody waits who only adds or removes an id.
"""

from __future__ import annotations

from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.cache.index.cell_rows import CellRows
from gateway.cache.index.cell_training import CellTraining, sample_size_for
from gateway.cache.index.flat_rows import FlatRows, Match

CELLS_FROM: Final = 10_000
"""Rows from which a context gets cells; comparing with all of so many takes a third of a millisecond."""
TAIL_ROWS: Final = 2_000
"""Rows that wait beside cells before they move into them."""
_DEAD_SHARE: Final = 0.25
_FEW_DEAD: Final = 100
_SAMPLED_AT_ONCE: Final = 64


class Partition:
    """Thread-safe. `moving` keeps rows from changing places, for a snapshot; it may be held for long."""

    def __init__(self, dimensions: int, *, cells_from: int = CELLS_FROM, tail_rows: int = TAIL_ROWS) -> None:
        self.moving = Lock()
        self.flat = FlatRows(dimensions)
        self.cells: list[CellRows] = []
        """The last take rows; those before them are being emptied into them."""
        self.lock = Lock()
        """Held for as long as a flat search takes, at most."""
        self._cells_lock = Lock()
        """Of searches in cells and additions to them. Never waited for with `lock` in hand."""
        self._dimensions = dimensions
        self._cells_from = cells_from
        self._tail_rows = tail_rows
        self._is_moving_tail = False
        self._training: CellTraining | None = None
        """Of the cells that are to be the next."""

    def __len__(self) -> int:
        with self.lock:
            return self._size()

    @property
    def places(self) -> tuple[FlatRows | CellRows, ...]:
        """Where rows are; an id lives in one of them at most."""
        return (self.flat, *self.cells)

    @property
    def is_quick(self) -> bool:
        """Whether a search takes well under a millisecond and waits for nobody."""
        return not self.cells and len(self.flat) <= self._cells_from

    @property
    def needs_moving(self) -> bool:
        """Whether `move` has something to do."""
        if not self.cells:
            return len(self.flat) > self._cells_from
        return self._is_moving_tail or len(self.flat) > self._tail_rows or len(self.cells) > 1 or self._is_worn_out

    @property
    def _is_worn_out(self) -> bool:
        """Whether what is in the cells has to move to new ones."""
        cells = self.cells[-1]
        return cells.is_outgrown or cells.num_dead > max(_FEW_DEAD, _DEAD_SHARE * len(cells.exacts))

    def add(self, exact: bytes, vector: NDArray[np.float32]) -> None:
        """Add or replace."""
        with self.lock:
            self._remove(exact)
            self.flat.extend([exact], vector[None])

    def remove(self, exact: bytes) -> int:
        """Remove it if it is there; how many are left."""
        with self.lock:
            self._remove(exact)
            return self._size()

    def vector(self, exact: bytes) -> NDArray[np.float32] | None:
        """The id's vector."""
        with self.lock:
            for rows in self.places:
                vector = rows.vector(exact)
                if vector is not None:
                    return vector
        return None

    def nearest(self, vector: NDArray[np.float32], count: int) -> list[Match]:
        """Up to `count` matches, nearest first."""
        with self.lock:
            found = self.flat.nearest(vector, count)
        if not self.cells:
            return found
        # In the order in which rows change places: one that does so meanwhile is met again, and never missed.
        searched: list[CellRows] = []
        while (cells := next((each for each in self.cells if each not in searched), None)) is not None:
            with self._cells_lock:
                found += cells.nearest(vector, count)
            searched.append(cells)
        best: dict[bytes, float] = {}
        for cosine, exact in sorted(found, reverse=True):
            best.setdefault(exact, cosine)
        return [(cosine, exact) for exact, cosine in best.items()][:count]

    def move(self, num_rows: int) -> int:
        """Move up to so many rows to where they belong, or do some of the work that new cells need; about how many rows
        that were, 0 when all is well."""
        with self.moving:
            with self.lock:
                source = self._source()
                if source is None:
                    self._training = None  # those whom it was for are gone
                    return 0
            if source is self.places[-1]:
                self._train(source)
                return 1
            with self.lock:
                exacts, rows = source.last(num_rows)
            target, place = self.cells[-1], 0
            if exacts:
                with self._cells_lock:
                    place = target.append(exacts, rows)
            with self.lock:
                for exact, row in zip(exacts, rows, strict=True):
                    if _is_same(source.vector(exact), row):
                        source.remove(exact)
                        target.settle(exact, place)
                    place += 1
                is_empty = not source
                if is_empty:
                    self._close(source)
            if isinstance(source, CellRows):
                self._give_back(source, is_empty=is_empty)
            return max(1, len(exacts))

    def drain(self) -> None:
        """Give the memory of cells back, a piece at a time, where nothing lives any more."""
        with self.moving:
            with self.lock:
                drained, self.cells = self.cells, []
            for cells in drained:
                self._give_back(cells, is_empty=True)

    def _give_back(self, source: CellRows, *, is_empty: bool) -> None:
        """As rows leave cells their memory goes, so that two sets of a million never stand side by side."""
        if not is_empty:
            source.shed()
            return
        with self._cells_lock:
            pass  # a search in them has ended, and the next one finds that nothing lives there
        source.drain()

    def _source(self) -> FlatRows | CellRows | None:
        """Where to take rows from, the last cells being where they go: first what waits, then what is worn out. The
        last place itself stands for new cells that have to be made first; None when all is well."""
        if not self.cells:
            return self.flat if len(self.flat) > self._cells_from else None
        if self._is_moving_tail or len(self.flat) > self._tail_rows:
            self._is_moving_tail = True
            return self.flat
        return self.cells[0] if len(self.cells) > 1 or self._is_worn_out else None

    def _train(self, source: FlatRows | CellRows) -> None:
        """Go on making new cells for what the source has, for half a second where they are many."""
        if self._training is None:
            size = sample_size_for(len(source))
            sample = source.sample(size) if isinstance(source, CellRows) else self._sample(size)
            self._training = CellTraining(sample, len(source))
        elif (index := self._training.step()) is not None:
            made_for, self._training = self._training.num_rows, None
            with self.lock:
                self.cells.append(CellRows(index, made_for))
                self._is_moving_tail = True

    def _sample(self, num_rows: int) -> NDArray[np.float32]:
        """About so many of the flat rows, from everywhere, taken a few at a time so that nobody waits for it."""
        rng, pieces = np.random.default_rng(num_rows), []
        for _ in range(0, num_rows, _SAMPLED_AT_ONCE):
            with self.lock:
                begin = int(rng.integers(0, max(1, len(self.flat) - _SAMPLED_AT_ONCE)))
                pieces.append(self.flat.stretch(begin, begin + _SAMPLED_AT_ONCE)[1])
        return np.concatenate(pieces)

    def _close(self, source: FlatRows | CellRows) -> None:
        """It has no rows left."""
        if source is self.flat:
            self._is_moving_tail = False
        else:
            del self.cells[0]

    def _remove(self, exact: bytes) -> None:
        if not self.flat.remove(exact):
            any(cells.remove(exact) for cells in self.cells)

    def _size(self) -> int:
        return len(self.flat) + sum(map(len, self.cells))


def _is_same(vector: NDArray[np.float32] | None, before: NDArray[np.float32]) -> bool:
    """Whether the id is still there, and stands for what it stood for."""
    return vector is not None and np.array_equal(vector, before)

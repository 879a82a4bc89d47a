"""Shelf: the vectors of one context, in a matrix while they are few, in a graph once they are many.

    add ──▶ flat ──a handful at a time──▶ graph ──when a quarter of it is dead──▶ next graph

Rows change places under a lock, and a search looks in all places: so an index grows from flat to graph, and a graph
sheds its removed rows, while it is searched and changed. What takes long in a graph, to search it and to add to it, has
a lock of its own, for which nobody waits who only adds or removes an id.
"""

from __future__ import annotations

from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.cache.flat_rows import FlatRows, Match
from gateway.cache.graph_rows import GraphRows

GRAPH_FROM: Final = 10_000
"""Rows from which a context gets a graph; comparing with all of so many takes a third of a millisecond."""
TAIL_ROWS: Final = 2_000
"""Rows that wait beside a graph before they move into it."""
_DEAD_SHARE: Final = 0.25
_FEW_DEAD: Final = 100


class Shelf:
    """Thread-safe. `moving` keeps rows from changing places, for a snapshot; it may be held for long."""

    def __init__(self, dimensions: int, *, graph_from: int = GRAPH_FROM, tail_rows: int = TAIL_ROWS) -> None:
        self.moving = Lock()
        self.flat = FlatRows(dimensions)
        self.graphs: list[GraphRows] = []
        """The last one takes rows; one before it is being emptied into it."""
        self.lock = Lock()
        """Held for as long as a flat search takes, at most."""
        self._graphs_lock = Lock()
        """Of searches in graphs and additions to them. Never waited for with `lock` in hand."""
        self._dimensions = dimensions
        self._graph_from = graph_from
        self._tail_rows = tail_rows
        self._is_moving_tail = False

    def __len__(self) -> int:
        with self.lock:
            return self._size()

    @property
    def places(self) -> tuple[FlatRows | GraphRows, ...]:
        """Where rows are; an id lives in one of them at most."""
        return (self.flat, *self.graphs)

    @property
    def is_quick(self) -> bool:
        """Whether a search takes well under a millisecond and waits for nobody."""
        return not self.graphs and len(self.flat) <= self._graph_from

    @property
    def needs_moving(self) -> bool:
        """Whether `move` has something to do."""
        return self._has_rows_to_move or (bool(self.graphs) and self.graphs[-1].is_uneven)

    @property
    def _has_rows_to_move(self) -> bool:
        if self._is_moving_tail or len(self.graphs) > 1:
            return True
        if not self.graphs:
            return len(self.flat) > self._graph_from
        dead = self.graphs[0].num_dead
        return len(self.flat) > self._tail_rows or dead > max(_FEW_DEAD, _DEAD_SHARE * len(self.graphs[0].exacts))

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
        if not self.graphs:
            return found
        # In the order in which rows change places: one that does so meanwhile is met again, and never missed.
        searched: list[GraphRows] = []
        while (graph := next((each for each in self.graphs if each not in searched), None)) is not None:
            with self._graphs_lock:
                found += graph.nearest(vector, count)
            searched.append(graph)
        best: dict[bytes, float] = {}
        for cosine, exact in sorted(found, reverse=True):
            best.setdefault(exact, cosine)
        return [(cosine, exact) for exact, cosine in best.items()][:count]

    def move(self, num_rows: int) -> int:
        """Move up to so many rows to where they belong, or do some of the work that makes them be found; about how many
        rows that were, 0 when all is well."""
        with self.moving:
            with self.lock:
                if not self.needs_moving:
                    return 0
                has_rows = self._has_rows_to_move
                source = self._source() if has_rows else self.flat
                exacts, rows = source.last(num_rows if has_rows else 0)
            target, place = self.graphs[-1], 0
            if not has_rows:
                with self._graphs_lock:
                    target.even_out(num_rows)
                return num_rows
            if exacts:
                with self._graphs_lock:
                    place = target.append(exacts, rows)
            with self.lock:
                for exact, row in zip(exacts, rows, strict=True):
                    if _is_same(source.vector(exact), row):
                        source.remove(exact)
                        target.settle(exact, place)
                    place += 1
                if not source:
                    self._close(source)
            return max(1, len(exacts))

    def _source(self) -> FlatRows | GraphRows:
        """Where to take rows from, the last graph being where they go: first what waits, then what is dying."""
        if not self.graphs:
            self.graphs.append(GraphRows(self._dimensions))
            self._is_moving_tail = True
        if self._is_moving_tail or len(self.flat) > self._tail_rows:
            self._is_moving_tail = True
            return self.flat
        if len(self.graphs) == 1:
            self.graphs.append(GraphRows(self._dimensions))
        return self.graphs[0]

    def _close(self, source: FlatRows | GraphRows) -> None:
        """It has no rows left."""
        if source is self.flat:
            self._is_moving_tail = False
        else:
            del self.graphs[0]

    def _remove(self, exact: bytes) -> None:
        if not self.flat.remove(exact):
            any(graph.remove(exact) for graph in self.graphs)

    def _size(self) -> int:
        return len(self.flat) + sum(map(len, self.graphs))


def _is_same(vector: NDArray[np.float32] | None, before: NDArray[np.float32]) -> bool:
    """Whether the id is still there, and stands for what it stood for."""
    return vector is not None and np.array_equal(vector, before)

"""VectorIndex: the kept entries nearest to a vector, among those of the same context only.

Each context (all that shapes an answer but the last user text) has a shelf of its own: the context is inside the
query, not a filter after it, so that no neighbour of another tenant, model or system prompt can ever come back, and
thousands of contexts with a few entries each cost no more than their rows.
"""

from __future__ import annotations

from threading import Lock
from time import sleep
from typing import Final, NamedTuple

from gateway.cache.index.id_map import IdMap
from gateway.cache.index.partition import CELLS_FROM, TAIL_ROWS, Partition
from gateway.embedding.encoder import Vector

_IDS_AT_ONCE: Final = 500
_BREATH_S: Final = 5e-5
"""After each move: a lock is not fair, and who moves on at once may take it again before those who wait for it."""


class Neighbour(NamedTuple):
    """A kept entry; `similarity` is the cosine, higher is closer."""

    exact: bytes
    similarity: float


class VectorIndex:
    """Ids (`exact`) in contexts. Every method may be called from any thread at any time.

    On an event loop: `add`, `remove`, `in` and `len` always (they wait for a search among what is in no cell, at
    most); `nearest` where `is_quick` says so; `move` never.
    """

    def __init__(
        self, dimensions: int, encoder_id: str, *, cells_from: int = CELLS_FROM, tail_rows: int = TAIL_ROWS
    ) -> None:
        """Contexts of more than `cells_from` entries get cells, beside which `tail_rows` may wait."""
        self.dimensions = dimensions
        self.encoder_id = encoder_id
        self._cells_from = cells_from
        self._tail_rows = tail_rows
        self._lock = Lock()
        self._contexts = IdMap[bytes]()
        """Of each id."""
        self._shelves: dict[bytes, Partition] = {}
        self._unsettled: dict[bytes, Partition] = {}
        """Those that may need moving."""
        self._emptied: list[Partition] = []
        """Those with cells that hold memory for nobody."""
        self._num_changes = 0

    def __len__(self) -> int:
        return len(self._contexts)

    def __contains__(self, exact: bytes) -> bool:
        return exact in self._contexts

    @property
    def num_contexts(self) -> int:
        """Contexts with entries."""
        return len(self._shelves)

    @property
    def num_changes(self) -> int:
        """Grows with every `add` and `remove`: whether a snapshot is still what is here."""
        return self._num_changes

    @property
    def needs_moving(self) -> bool:
        """Whether `move` has something to do."""
        return bool(self._unsettled or self._emptied)

    def add(self, context: bytes, exact: bytes, vector: Vector) -> None:
        """Add the id or move it here with this vector, of which a copy is kept. ValueError: other dimensions."""
        if vector.shape != (self.dimensions,):
            raise ValueError(f"expected a vector of {self.dimensions} dimensions, got shape {vector.shape}")
        with self._lock:
            if self._contexts.get(exact) not in (None, context):
                self._remove(exact)
            shelf = self._shelves.get(context)
            if shelf is None:
                shelf = self._shelves[context] = self.new_shelf()
            shelf.add(exact, vector)
            self._contexts[exact] = context
            self._note_change(context, shelf)

    def remove(self, exact: bytes) -> None:
        """Forget the id, if it is known."""
        with self._lock:
            self._remove(exact)

    def is_quick(self, context: bytes) -> bool:
        """Whether `nearest` takes well under a millisecond here."""
        shelf = self._shelves.get(context)
        return shelf is None or shelf.is_quick

    def nearest(self, context: bytes, vector: Vector, count: int = 2) -> list[Neighbour]:
        """Up to `count` entries of this context, best first."""
        shelf = self._shelves.get(context)
        if shelf is None:
            return []
        return [Neighbour(exact, min(1.0, cosine)) for cosine, exact in shelf.nearest(vector, count)]

    def vector(self, exact: bytes) -> Vector | None:
        """What was added under the id, to half precision."""
        context = self._contexts.get(exact)
        shelf = None if context is None else self._shelves.get(context)
        return None if shelf is None else shelf.vector(exact)

    def move(self, num_rows: int) -> int:
        """Background work: move up to so many rows into or between cells; how many that were, 0 when none need be.

        Searches of the same context wait while rows are added to cells, a tenth of a millisecond or so for each. New
        cells take ten calls or so of half a second each where they are many, during which nobody waits.
        """
        while True:
            with self._lock:
                emptied = self._emptied.pop() if self._emptied else None
                if emptied is None:
                    if not self._unsettled:
                        return 0
                    context, shelf = next(iter(self._unsettled.items()))
            if emptied is not None:
                emptied.drain()
                return 1
            num_moved = shelf.move(num_rows)
            if num_moved > 0:
                sleep(_BREATH_S)
                return num_moved
            with self._lock:
                if self._unsettled.get(context) is shelf and not shelf.needs_moving:
                    del self._unsettled[context]

    def shelves(self) -> list[tuple[bytes, Partition]]:
        """Every context with its shelf, as of now."""
        with self._lock:
            return list(self._shelves.items())

    def new_shelf(self) -> Partition:
        """An empty one, as all of this index are."""
        return Partition(self.dimensions, cells_from=self._cells_from, tail_rows=self._tail_rows)

    def put_shelf(self, context: bytes, shelf: Partition) -> None:
        """Take a shelf of a context that is not here yet, as a snapshot has it; ids that are here already leave it."""
        with self._lock:
            for rows in shelf.places:
                known = []
                for number, exact in enumerate(rows.ids()):
                    if exact in self._contexts:
                        known.append(exact)
                    else:
                        self._contexts[exact] = context
                    if number % _IDS_AT_ONCE == 0:
                        sleep(0)  # the event loop wants its turns
                for exact in known:
                    rows.remove(exact)
            if len(shelf) > 0:
                self._shelves[context] = shelf
                self._note_change(context, shelf)

    def _remove(self, exact: bytes) -> None:
        context = self._contexts.pop(exact)
        if context is None:
            return
        shelf = self._shelves[context]
        if shelf.remove(exact) == 0:
            del self._shelves[context]
            self._unsettled.pop(context, None)
            if shelf.cells:
                self._emptied.append(shelf)
            self._num_changes += 1
        else:
            self._note_change(context, shelf)

    def _note_change(self, context: bytes, shelf: Partition) -> None:
        self._num_changes += 1
        if shelf.needs_moving:
            self._unsettled[context] = shelf

"""VectorIndex: the cache entries nearest to a vector, among those of the same context only.

Each context (all that shapes an answer but the last user text) has a partition: the context is inside the query, not a
filter after it. So no neighbour of another tenant, model or system prompt can ever come back.
"""

from __future__ import annotations

from threading import Lock
from typing import Final, NamedTuple

import numpy as np

from gateway.cache.index.partition import FLAT_ROWS, Partition
from gateway.cache.index.segment import MIN_FLAT_ROWS, IndexSegment, MergeStopped, matrix_of, merge_segments
from gateway.embedding.encoder import Vector


class Neighbour(NamedTuple):
    """A cache entry near a vector; `similarity` is the cosine, higher is closer."""

    exact: bytes
    similarity: float


class VectorIndex:
    """Ids (`exact`) in contexts. Every method may be called from any thread at any time.

    On an event loop: all but `compact`, and `nearest` only where `is_quick` is true.
    """

    def __init__(self, dimensions: int, encoder_id: str, *, flat_rows: int = FLAT_ROWS) -> None:
        """Contexts of more than `flat_rows` entries get cells."""
        self.dimensions = dimensions
        self.encoder_id = encoder_id
        self.num_changes = 0
        """Count of changes, which shows whether a snapshot is up to date."""
        self._flat_rows: Final = max(flat_rows, MIN_FLAT_ROWS)
        self._partitions: dict[bytes, Partition] = {}
        self._num_entries = 0
        self._due: dict[bytes, None] = {}
        """Contexts whose segments may have to be merged."""
        self._lock = Lock()
        """Lock that is held for well under a millisecond."""
        self._compacting = Lock()
        self._is_stopped = False

    def __len__(self) -> int:
        return self._num_entries

    @property
    def num_contexts(self) -> int:
        """Contexts with entries, or with memory that `compact` gives back."""
        return len(self._partitions)

    @property
    def needs_compaction(self) -> bool:
        """Return whether `compact` may have something to do."""
        return bool(self._due) and not self._is_stopped

    def contains(self, context: bytes, exact: bytes) -> bool:
        """Return whether the id is in this context."""
        with self._lock:
            return exact in self._partitions.get(context, ())

    def add(self, context: bytes, exact: bytes, vector: Vector) -> None:
        """Add or replace an entry; raises ValueError for a vector of other dimensions."""
        if vector.shape != (self.dimensions,):
            raise ValueError(f"expected a vector of {self.dimensions} dimensions, got shape {vector.shape}")
        with self._lock:
            partition = self._partitions.setdefault(context, Partition(self._flat_rows))
            self._num_entries += not partition.remove(exact)
            partition.add(exact, vector.astype(np.float32, copy=False))
            self._note_change(context, partition)

    def remove(self, context: bytes, exact: bytes) -> None:
        """Remove the id from this context, if it is there."""
        with self._lock:
            partition = self._partitions.get(context)
            if partition is not None and partition.remove(exact):
                self._num_entries -= 1
                self._note_change(context, partition)

    def is_quick(self, context: bytes) -> bool:
        """Return whether `nearest` takes well under a millisecond here."""
        partition = self._partitions.get(context)
        return partition is None or partition.is_quick

    def nearest(self, context: bytes, vector: Vector, count: int = 2) -> list[Neighbour]:
        """Return up to `count` entries of this context, best first."""
        with self._lock:
            partition = self._partitions.get(context)
            if partition is None:
                return []
            recent, segments = partition.recent.copy(), partition.segments
        found = [match for segment in segments for match in segment.nearest(vector, count)]
        if recent:
            cosines, exacts = matrix_of(list(recent.values())) @ vector, list(recent)
            found += [(float(cosines[row]), exacts[row]) for row in np.argsort(cosines)[-count:].tolist()]
        return [Neighbour(exact, min(1.0, cosine)) for cosine, exact in sorted(found, reverse=True)[:count]]

    def compact(self) -> bool:
        """Merge some segments; return False when none are due. For a background thread: takes up to ten seconds."""
        with self._compacting:
            with self._lock:
                context = next(iter(self._due), None)
                if context is None or self._is_stopped:
                    return False
                partition = self._partitions.get(context, Partition(self._flat_rows))
                sources = partition.due()
                if not sources:
                    del self._due[context]
                    return True
                living = [source.living() for source in sources]
            try:
                index, ids, order = merge_segments(sources, living, self._flat_rows, lambda: self._is_stopped)
            except MergeStopped:
                return False
            with self._lock:
                still = [source.living()[before] for source, before in zip(sources, living, strict=True)]
                partition.replace(sources, IndexSegment(index, ids, np.concatenate(still)[order]))
                self._drop_empty(context, partition)
            return True

    def end_compaction(self) -> None:
        """Let `compact` do nothing more, within seconds: the process ends."""
        self._is_stopped = True

    def segments(self) -> list[tuple[bytes, IndexSegment]]:
        """Return all entries for a snapshot, each segment with its context."""
        found: list[tuple[bytes, IndexSegment]] = []
        for context, partition in list(self._partitions.items()):
            with self._lock:
                recent, segments = partition.recent.copy(), partition.segments
            found += [(context, each) for each in [*segments, *([IndexSegment.flat(recent)] if recent else [])]]
        return found

    def put_segment(self, context: bytes, segment: IndexSegment) -> None:
        """Take a segment of a snapshot; the index has none of its entries yet."""
        with self._lock:
            partition = self._partitions.setdefault(context, Partition(self._flat_rows))
            partition.segments = [*partition.segments, segment]
            self._num_entries += segment.num_living
            self._note_change(context, partition)

    def _note_change(self, context: bytes, partition: Partition) -> None:
        self.num_changes += 1
        if partition.due():
            self._due[context] = None
        self._drop_empty(context, partition)

    def _drop_empty(self, context: bytes, partition: Partition) -> None:
        """Large segments are given back by `compact`, not here: that takes longer than an event loop may wait."""
        if not len(partition) and partition.is_quick and self._partitions.get(context) is partition:
            del self._partitions[context]

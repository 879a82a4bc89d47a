"""IndexFile: the vector index of one process on disk, so that the next process starts with it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.cache.index.vector_index import VectorIndex

SAVE_S: Final = 300.0
"""Time between two snapshots of an index that changes."""
_COMPACT_S: Final = 0.2


class IndexFile:
    """The file of an index; it works off the event loop, and an unusable file counts as none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._index: VectorIndex | None = None
        self._num_saved: int | None = None
        """Changes in the file; None where the index is not saved."""

    async def open(self, encoder_id: str, dimensions: int, *, is_saved: bool) -> tuple[VectorIndex, str | None]:
        """Return the saved index, else an empty one, and what was wrong with the file."""
        # FAISS costs time and memory: it is imported where it is used.
        from gateway.cache.index.snapshot import SnapshotUnusable, load_vectors
        from gateway.cache.index.vector_index import VectorIndex

        self._index, problem = VectorIndex(dimensions, encoder_id), None
        if is_saved and await asyncio.to_thread(self._path.exists):
            try:
                self._index = await asyncio.to_thread(load_vectors, self._path, encoder_id, dimensions)
            except SnapshotUnusable as error:
                problem = str(error)
        self._num_saved = self._index.num_changes if is_saved else None
        return self._index, problem

    async def save(self) -> None:
        """Save what has changed. Raises OSError."""
        from gateway.cache.index.snapshot import save_vectors

        if self._index is not None and self._num_saved not in (None, self._index.num_changes):
            self._num_saved = self._index.num_changes
            await asyncio.to_thread(save_vectors, self._index, self._path)

    def stop(self) -> None:
        """Let a merge that runs end soon, and begin no other."""
        if self._index is not None:
            self._index.end_compaction()

    async def compact(self) -> None:
        """Merge segments for a moment, or until one merge has ended."""
        if self._index is not None and self._index.needs_compaction:
            await asyncio.to_thread(_compact, self._index, time.monotonic() + _COMPACT_S)


def _compact(index: VectorIndex, until: float) -> None:
    while index.compact() and time.monotonic() < until:
        pass

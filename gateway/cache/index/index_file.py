"""IndexFile: snapshots of the index, so that a process that starts has its vectors at once, and its growth."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.cache.index.vector_index import VectorIndex

SAVE_S: Final = 300.0
"""Between two snapshots of an index that changes."""
_ROWS_AT_ONCE: Final = 8
"""The event loop may have to wait for one handful."""
_MOVE_S: Final = 0.2
"""How long one stretch of moving rows into cells may take; searches go on between two handfuls."""


class IndexFile:
    """Works off the event loop; a file that is no good is as if there were none."""

    def __init__(self, path: Path, *, dimensions: int) -> None:
        self._path = path
        self._dimensions = dimensions
        self._index: VectorIndex | None = None
        self._num_saved = 0
        self._is_saved = True

    def begin(self, encoder_id: str) -> VectorIndex:
        """An empty index that is not saved."""
        from gateway.cache.index.vector_index import VectorIndex  # FAISS costs time and memory: only where it is used

        self._index, self._is_saved = VectorIndex(self._dimensions, encoder_id), False
        return self._index

    async def load(self, encoder_id: str) -> tuple[VectorIndex, str | None]:
        """The index as it was saved, else an empty one and what was wrong; None where there was no file."""
        from gateway.cache.index.vector_index import VectorIndex
        from gateway.cache.index.vector_snapshot import SnapshotUnusable, load_vectors

        problem = None
        index = VectorIndex(self._dimensions, encoder_id)
        if await asyncio.to_thread(self._path.exists):
            try:
                index = await asyncio.to_thread(load_vectors, self._path, encoder_id, self._dimensions)
            except (SnapshotUnusable, OSError) as error:
                problem = str(error)
        self._index = index
        self._num_saved = index.num_changes
        return index, problem

    async def save(self) -> None:
        """Save what has changed. Raises OSError."""
        from gateway.cache.index.vector_snapshot import save_vectors

        index = self._index
        if self._is_saved and index is not None and index.num_changes != self._num_saved:
            self._num_saved = index.num_changes
            await asyncio.to_thread(save_vectors, index, self._path)

    async def settle(self) -> None:
        """Let what has grown large get cells."""
        if self._index is not None and self._index.needs_moving:
            await asyncio.to_thread(_move, self._index, time.monotonic() + _MOVE_S)


def _move(index: VectorIndex, until: float) -> None:
    while index.needs_moving and time.monotonic() < until:
        index.move(_ROWS_AT_ONCE)

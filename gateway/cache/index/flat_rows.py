"""FlatRows: vectors in matrices, compared with every one of them; exact, and quicker than anything else while few."""

from __future__ import annotations

from typing import Final

import faiss
import numpy as np
from numpy.typing import NDArray

Match = tuple[float, bytes]
"""Cosine and id: sorts by what is nearest."""

_FIRST_ROWS: Final = 1
"""Most contexts have one entry or two, and there may be thousands of them."""
_BLOCK_ROWS: Final = 4096
"""Of a matrix, above which another one is begun: to copy a large one into a larger one would take too long."""
_SHRINK_AT: Final = 4


class FlatRows:
    """Ids and their vectors, without gaps: the last row takes the place of a removed one. Not thread-safe."""

    def __init__(self, dimensions: int) -> None:
        self._blocks = [np.empty((_FIRST_ROWS, dimensions), np.float32)]
        self._exacts: list[bytes] = []
        self._places: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._exacts)

    def __contains__(self, exact: bytes) -> bool:
        return exact in self._places

    def ids(self) -> list[bytes]:
        """All that are here."""
        return list(self._exacts)

    def vector(self, exact: bytes) -> NDArray[np.float32] | None:
        """A copy of the id's vector."""
        place = self._places.get(exact)
        return None if place is None else self._row(place).copy()

    def stretch(self, begin: int, end: int) -> tuple[list[bytes], NDArray[np.float32]]:
        """Copies of some ids and their vectors, in an order that any removal changes."""
        exacts = self._exacts[begin:end]
        rows = np.empty((len(exacts), self._blocks[0].shape[1]), np.float32)
        for number in range(len(exacts)):
            rows[number] = self._row(begin + number)
        return exacts, rows

    def last(self, num_rows: int) -> tuple[list[bytes], NDArray[np.float32]]:
        """Copies of up to so many ids with their vectors."""
        return self.stretch(max(0, len(self._exacts) - num_rows), len(self._exacts))

    def extend(self, exacts: list[bytes], rows: NDArray[np.float32]) -> None:
        """Add ids that are not there yet."""
        for exact, row in zip(exacts, rows, strict=True):
            place = len(self._exacts)
            self._make_room(place + 1)
            self._row(place)[:] = row
            self._exacts.append(exact)
            self._places[exact] = place

    def remove(self, exact: bytes) -> bool:
        """Whether it was there."""
        place = self._places.pop(exact, None)
        if place is None:
            return False
        last = self._exacts.pop()
        if last != exact:
            self._exacts[place] = last
            self._places[last] = place
            self._row(place)[:] = self._row(len(self._exacts))
        self._shrink()
        return True

    def nearest(self, vector: NDArray[np.float32], count: int) -> list[Match]:
        """Up to `count` matches, best first."""
        faiss.omp_set_num_threads(1)  # a setting of the calling thread: two threads for one vector only cost
        found: list[Match] = []
        for begin, block in zip(range(0, len(self._exacts), _BLOCK_ROWS), self._blocks, strict=False):
            rows = block[: len(self._exacts) - begin]
            cosines, places = faiss.knn(vector[None], rows, min(count, len(rows)), faiss.METRIC_INNER_PRODUCT)
            matches = zip(cosines[0].tolist(), places[0].tolist(), strict=True)
            found += [(cosine, self._exacts[begin + place]) for cosine, place in matches]
        if len(self._blocks) > 1:
            found.sort(reverse=True)
        return found[:count]

    def _row(self, place: int) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self._blocks[place // _BLOCK_ROWS][place % _BLOCK_ROWS]
        return row

    def _make_room(self, num_rows: int) -> None:
        if len(self._blocks) == 1 and len(self._blocks[0]) < min(num_rows, _BLOCK_ROWS):
            self._resize(2 * len(self._blocks[0]))
        elif num_rows > len(self._blocks) * _BLOCK_ROWS:
            self._blocks.append(np.empty((_BLOCK_ROWS, self._blocks[0].shape[1]), np.float32))

    def _shrink(self) -> None:
        if len(self._blocks) > 1:
            if len(self._exacts) <= (len(self._blocks) - 1) * _BLOCK_ROWS:
                self._blocks.pop()
        elif len(self._blocks[0]) > _FIRST_ROWS and len(self._exacts) * _SHRINK_AT < len(self._blocks[0]):
            self._resize(len(self._blocks[0]) // 2)

    def _resize(self, num_rows: int) -> None:
        """Of the only matrix."""
        before = self._blocks[0]
        after = np.empty((num_rows, before.shape[1]), np.float32)
        after[: len(self._exacts)] = before[: len(self._exacts)]
        self._blocks[0] = after

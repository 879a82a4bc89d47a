"""FlatRows: vectors in one matrix, compared with every one of them; exact, and quicker than any graph while few."""

from __future__ import annotations

from typing import Final

import faiss
import numpy as np
from numpy.typing import NDArray

Match = tuple[float, bytes]
"""Cosine and id: sorts by what is nearest."""

_FIRST_ROWS: Final = 1
"""Most contexts have one entry or two, and there may be thousands of them."""
_SHRINK_AT: Final = 4


class FlatRows:
    """Ids and their vectors, without gaps: the last row takes the place of a removed one. Not thread-safe."""

    def __init__(self, dimensions: int) -> None:
        self._matrix = np.empty((_FIRST_ROWS, dimensions), np.float32)
        self._exacts: list[bytes] = []
        self._places: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._exacts)

    def __contains__(self, exact: bytes) -> bool:
        return exact in self._places

    @property
    def exacts(self) -> list[bytes]:
        """The ids in the order of `rows`; not to be changed."""
        return self._exacts

    @property
    def rows(self) -> NDArray[np.float32]:
        """The vectors, a view that the next change makes stale."""
        return self._matrix[: len(self._exacts)]

    def ids(self) -> list[bytes]:
        """All that are here."""
        return list(self._places)

    def vector(self, exact: bytes) -> NDArray[np.float32] | None:
        """A copy of the id's vector."""
        place = self._places.get(exact)
        return None if place is None else self._matrix[place].copy()

    def extend(self, exacts: list[bytes], rows: NDArray[np.float32]) -> None:
        """Add ids that are not there yet."""
        begin, end = len(self._exacts), len(self._exacts) + len(exacts)
        if end > len(self._matrix):
            self._resize(max(end, 2 * len(self._matrix)))
        self._matrix[begin:end] = rows
        self._exacts += exacts
        self._places.update(zip(exacts, range(begin, end), strict=True))

    def remove(self, exact: bytes) -> bool:
        """Whether it was there."""
        place = self._places.pop(exact, None)
        if place is None:
            return False
        last = self._exacts.pop()
        if last != exact:
            self._exacts[place] = last
            self._places[last] = place
            self._matrix[place] = self._matrix[len(self._exacts)]
        self._shrink()
        return True

    def take(self, num_rows: int) -> tuple[list[bytes], NDArray[np.float32]]:
        """Remove up to so many ids and return them with their vectors."""
        begin = max(0, len(self._exacts) - num_rows)
        taken, rows = self._exacts[begin:], self.rows[begin:].copy()
        del self._exacts[begin:]
        for exact in taken:
            del self._places[exact]
        self._shrink()
        return taken, rows

    def nearest(self, vector: NDArray[np.float32], count: int) -> list[Match]:
        """Up to `count` matches, best first."""
        asked = min(count, len(self._exacts))
        if asked == 0:
            return []
        faiss.omp_set_num_threads(1)  # a setting of the calling thread: two threads for one vector only cost
        cosines, places = faiss.knn(vector[None], self.rows, asked, faiss.METRIC_INNER_PRODUCT)
        return [(float(cosine), self._exacts[place]) for cosine, place in zip(cosines[0], places[0], strict=True)]

    def _shrink(self) -> None:
        if len(self._matrix) > _FIRST_ROWS and len(self._exacts) * _SHRINK_AT < len(self._matrix):
            self._resize(max(_FIRST_ROWS, len(self._matrix) // 2))

    def _resize(self, num_rows: int) -> None:
        matrix = np.empty((num_rows, self._matrix.shape[1]), np.float32)
        matrix[: len(self._exacts)] = self.rows
        self._matrix = matrix

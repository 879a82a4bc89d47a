"""Neighbours: for each text of a stream, the closest ones that came before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
_BLOCK: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Nearest earlier questions: [texts, count] places and cosines, closest first; place -1 where fewer came before."""

    places: NDArray[np.int64]
    similarities: NDArray[np.float32]


def earlier_neighbours(vectors: Vectors, count: int) -> Neighbours:
    """Return the nearest earlier neighbours of vectors of unit length."""
    number = len(vectors)
    places = np.full((number, count), -1, np.int64)
    similarities = np.full((number, count), -1.0, np.float32)
    for start in range(0, number, _BLOCK):
        stop = min(number, start + _BLOCK)
        cosines = vectors[start:stop] @ vectors[:stop].T
        cosines[np.triu_indices(stop - start, k=start, m=stop)] = -2.0
        found = min(count, stop)
        best = np.argpartition(-cosines, found - 1, axis=1)[:, :found]
        values = np.take_along_axis(cosines, best, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        places[start:stop, :found] = np.take_along_axis(best, order, axis=1)
        similarities[start:stop, :found] = np.take_along_axis(values, order, axis=1)
    places[similarities < -1.0] = -1
    return Neighbours(places=places, similarities=np.maximum(similarities, -1.0))

"""Nearest: a memory made from prompts, and what it says of each of them when its own kind is left out."""

from __future__ import annotations

import random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from routing_policies.quality.memory import NeighbourMemory
from routing_policies.quality.training.logistic import Floats, Matrix
from routing_policies.quality.training.members import Fold

MAX_ROWS: Final = 8192
NUM_AXES: Final = 128
_CHUNK: Final = 1024


class Space:
    """Embeddings on the axes along which these prompts differ most."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        spread = (vectors.T @ vectors).astype(np.float64)
        _, axes = np.linalg.eigh(spread)
        self.axes: Matrix = np.ascontiguousarray(axes[:, ::-1][:, :NUM_AXES].T, dtype=np.float32)
        places = vectors @ self.axes.T
        self.rows: Matrix = places / (np.linalg.norm(places, axis=1, keepdims=True) + 1e-9)
        self.num_nearest = max(min(round(len(vectors) ** 0.5), len(vectors) // 2), 1)

    def neighbours(self, folds: Fold) -> NDArray[np.int64]:
        """A line of row numbers for each prompt; nobody is a neighbour of those of the same fold."""
        found = np.zeros((len(self.rows), self.num_nearest), dtype=np.int64)
        for out in folds.each():
            kept, asked = np.flatnonzero(~out), np.flatnonzero(out)
            for start in range(0, len(asked), _CHUNK):
                chunk = asked[start : start + _CHUNK]
                similar = self.rows[chunk] @ self.rows[kept].T
                count = min(self.num_nearest, len(kept))
                found[chunk, :count] = kept[np.argpartition(-similar, count - 1, axis=1)[:, :count]]
        return found

    def memory(self, values: Floats, rng: random.Random) -> NeighbourMemory:
        """Two values a row; of a part of the prompts where there are very many."""
        rows = list(range(len(self.rows)))
        if len(rows) > MAX_ROWS:
            rows = sorted(rng.sample(rows, MAX_ROWS))
        return NeighbourMemory(
            axes=_packed(self.axes),
            num_axes=len(self.axes),
            rows=_packed(self.rows[rows]),
            values=_packed(values[rows]),
            num_nearest=min(self.num_nearest, len(rows)),
        )


def _packed(values: NDArray[np.floating]) -> bytes:
    return values.astype("<f2").tobytes()

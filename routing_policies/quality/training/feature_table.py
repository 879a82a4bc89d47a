"""FeatureTable: features of prompts as a sparse matrix, and fitted columns as a head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from routing_policies.estimation.boosted_trees import BoostedTree
from routing_policies.quality.features import LENGTH, Features
from routing_policies.quality.head import Head

Floats = NDArray[np.float64]
Rows = Any
"""Type of a `scipy.sparse.csr_matrix`; SciPy has no types."""

MAX_WORDS: Final = 1200
MAX_KNOTS: Final = 5
_FEW_WORDS: Final = 6
"""Minimum number of prompts with a word for the word to get a weight."""
_WORD_SCALE: Final = 0.5**0.5
"""Scale of the word columns: below 1, so that rare words are penalised more than steps of numbers."""


class FeatureTable:
    """Columns of the feature matrix: the length, the steps of each number, the words."""

    def __init__(self, features: Sequence[Features], *, max_knots: int = MAX_KNOTS) -> None:
        numbers = np.array([one.numbers for one in features])
        shares = np.linspace(0.0, 1.0, max_knots + 2)[1:-1]
        self._knots = [knots_of(column, shares) for column in numbers.T]
        counts = Counter(word for one in features for word in one.words)
        usual = [word for word, count in counts.most_common(MAX_WORDS) if count >= _FEW_WORDS]
        self._words = {word: place for place, word in enumerate(sorted(usual))}
        self.num_steps = 1 + sum(map(len, self._knots))
        """Number of columns ahead of the words: the length and the steps."""
        self.num_columns = self.num_steps + len(self._words)

    def rows(self, features: Sequence[Features]) -> Rows:
        """Return the sparse feature matrix [prompts, columns]."""
        numbers = np.array([one.numbers for one in features])
        steps = [numbers[:, column, None] > knots for column, knots in enumerate(self._knots)]
        left = np.concatenate([numbers[:, [LENGTH]], *steps], axis=1)
        found = [
            (row, self._words[word]) for row, one in enumerate(features) for word in one.words & self._words.keys()
        ]
        place = np.array(found, dtype=np.int64).reshape(-1, 2).T
        shape = (len(features), len(self._words))
        right = sparse.csr_matrix((np.full(place.shape[1], _WORD_SCALE), (place[0], place[1])), shape=shape)
        return sparse.hstack((sparse.csr_matrix(left), right), format="csr")

    def head(
        self,
        bias: float,
        coefficients: Floats,
        *,
        vector: Floats | None = None,
        trees: tuple[BoostedTree, ...] = (),
    ) -> Head:
        """Return a head from a coefficient for each column, one for each part of the embedding, and trees."""
        place, levels = 1, []
        for knots in self._knots:
            steps = np.concatenate(([0.0], np.cumsum(coefficients[place : place + len(knots)])))
            levels.append(tuple(rounded(steps)))
            place += len(knots)
        weights = zip(self._words, rounded(coefficients[self.num_steps :] * _WORD_SCALE), strict=True)
        return Head(
            bias=round(float(bias), 4),
            length=round(float(coefficients[0]), 4),
            knots=tuple(tuple(knots.tolist()) for knots in self._knots),
            levels=tuple(levels),
            words={word: weight for word, weight in weights if weight},
            vector=() if vector is None else tuple(rounded(vector)),
            trees=trees,
        )


def knots_of(values: Floats, shares: Floats) -> Floats:
    """Return the midpoints between these quantiles and the next larger values.

    A number stored with fewer digits stays on its side of such a knot.
    """
    seen = np.unique(values)
    below = np.searchsorted(seen, np.quantile(values, shares, method="lower"))
    below = np.unique(below[below < len(seen) - 1])
    return np.array(rounded((seen[below] + seen[below + 1]) / 2.0, 6))


def rounded(values: Floats, digits: int = 4) -> list[float]:
    """Return the values rounded to the digits of a file."""
    return [round(float(value), digits) for value in values]

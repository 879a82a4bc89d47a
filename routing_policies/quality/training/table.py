"""FeatureTable: features and embeddings as columns, and fitted columns as a head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from routing_policies.quality.features import LENGTH, Features
from routing_policies.quality.head import Head
from routing_policies.quality.training.logistic import Floats, Matrix
from routing_policies.quality.trees import PromptTree

Columns = NDArray[np.int64]

MAX_WORDS: Final = 1200
MAX_KNOTS: Final = 5
_FEW_WORDS: Final = 6
"""Prompts that must have a word before it gets a weight."""
_STEP_RIDGE: Final = 4.0
_WORD_RIDGE: Final = 8.0
_VECTOR_RIDGE: Final = 64.0
_VECTOR_SCALE: Final = 8.0
"""A part of a unit vector of 384 is about 0.05; so scaled, steps and parts are of a size."""


class FeatureTable:
    """Columns: one for the intercept, the length, steps of the numbers, words, parts of the embedding."""

    def __init__(
        self, features: Sequence[Features], vectors: NDArray[np.float32] | None = None, *, max_knots: int = MAX_KNOTS
    ) -> None:
        numbers = np.array([one.numbers for one in features])
        shares = np.linspace(0.0, 1.0, max_knots + 2)[1:-1]
        self._knots = [knots_of(numbers[:, column], shares) for column in range(numbers.shape[1])]
        counts = Counter(word for one in features for word in one.words)
        usual = [word for word, count in counts.most_common(MAX_WORDS) if count >= _FEW_WORDS]
        self._words = {word: position for position, word in enumerate(sorted(usual))}
        self._num_parts = 0 if vectors is None else vectors.shape[1]
        sizes = (1, 1, sum(map(len, self._knots)), len(self._words), self._num_parts)
        ends = np.cumsum(sizes)
        spans = [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self.intercept, self.length, self.steps, self.words, self.parts = spans
        self.num_columns = int(ends[-1])

    def rows(self, features: Sequence[Features], vectors: NDArray[np.float32] | None = None) -> Matrix:
        """A row for each prompt."""
        found = np.zeros((len(features), self.num_columns), dtype=np.float32)
        numbers = np.array([one.numbers for one in features])
        found[:, 0] = 1.0
        found[:, 1] = numbers[:, LENGTH]
        steps = [numbers[:, column, None] > knots for column, knots in enumerate(self._knots) if len(knots)]
        if steps:
            found[:, self.steps] = np.concatenate(steps, axis=1)
        first = 2 + len(self.steps)
        for row, one in enumerate(features):
            found[row, [first + self._words[word] for word in one.words if word in self._words]] = 1.0
        if vectors is not None:
            found[:, self.parts] = vectors * _VECTOR_SCALE
        return found

    def ridge(self) -> Floats:
        """Of each column; none for the intercept."""
        kinds = ((0.0, 1), (_STEP_RIDGE, 1), (_STEP_RIDGE, len(self.steps)), (_WORD_RIDGE, len(self.words)))
        return np.concatenate([np.full(count, size) for size, count in (*kinds, (_VECTOR_RIDGE, self._num_parts))])

    def head(self, found: Floats, trees: tuple[PromptTree, ...] = ()) -> Head:
        """One coefficient a column, and trees, as a head."""
        place, levels = 2, []
        for knots in self._knots:
            steps = np.concatenate(([0.0], np.cumsum(found[place : place + len(knots)])))
            levels.append(tuple(rounded(steps)))
            place += len(knots)
        weights = zip(self._words, rounded(found[self.words]), strict=True)
        parts = found[self.parts] * _VECTOR_SCALE
        return Head(
            bias=round(float(found[0]), 4),
            length=round(float(found[1]), 4),
            knots=tuple(tuple(knots.tolist()) for knots in self._knots),
            levels=tuple(levels),
            words={word: value for word, value in weights if value},
            vector=tuple(rounded(parts)) if np.any(parts) else (),
            trees=trees,
        )


def knots_of(values: Floats, shares: Floats) -> Floats:
    """Half-way from these quantiles to what comes next, as a file has them: a number that is kept with a digit less
    stays on its side."""
    seen = np.unique(values)
    below = np.searchsorted(seen, np.quantile(values, shares, method="lower"))
    below = np.unique(below[below < len(seen) - 1])
    return np.array(rounded((seen[below] + seen[below + 1]) / 2.0, 6))


def rounded(values: Floats, digits: int = 4) -> list[float]:
    """For a file."""
    return [round(float(value), digits) for value in values]

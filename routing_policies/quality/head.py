"""Head: the log odds of one question about a prompt, as a sum of small terms that can be read one by one."""

from __future__ import annotations

from bisect import bisect_left
from operator import mul
from typing import TYPE_CHECKING

import msgspec

from routing_policies.estimation.boosted_trees import BoostedTree, sum_of_trees
from routing_policies.quality.features import LENGTH, Features

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A generalised additive model: step functions of the numbers, weights of words, trees, weights of an embedding."""

    bias: float
    length: float = 0.0
    """Weight of the characters of all messages, squashed as in the features."""
    knots: tuple[tuple[float, ...], ...]
    """Places of each number's steps, ascending."""
    levels: tuple[tuple[float, ...], ...]
    """Term of each number on each side of its knots: one more than there are knots."""
    words: dict[str, float]
    vector: tuple[float, ...] = ()
    """Weights of the embedding's parts; empty for a head that does not look at it."""
    trees: tuple[BoostedTree, ...] = ()
    """They look at the numbers."""

    def log_odds(self, features: Features, vector: NDArray[np.float32] | None = None) -> float:
        """Return the sum of all terms; a head with weights for an embedding needs one."""
        numbers, weights = features.numbers, self.words
        total = self.bias + self.length * numbers[LENGTH] + sum_of_trees(self.trees, numbers)
        for value, knots, levels in zip(numbers, self.knots, self.levels, strict=True):
            total += levels[bisect_left(knots, value)]
        for word in features.words:
            if word in weights:
                total += weights[word]
        if self.vector:
            assert vector is not None, "a head with weights for an embedding needs one"
            total += float(sum(map(mul, self.vector, vector.tolist())))
        return total

"""Head: log odds of one yes-or-no outcome of a prompt, as a sum of small, readable terms."""

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
    """Generalised additive model: step functions of numbers, weights of words, trees, weights of an embedding."""

    bias: float
    length: float = 0.0
    """Weight of the characters of all messages, squashed as in the features."""
    knots: tuple[tuple[float, ...], ...]
    """Positions of each number's steps, ascending."""
    levels: tuple[tuple[float, ...], ...]
    """Terms of each number between its knots: one more than there are knots."""
    words: dict[str, float]
    vector: tuple[float, ...] = ()
    """Weight of each dimension of the embedding; empty for a head that does not use it."""
    trees: tuple[BoostedTree, ...] = ()
    """Boosted trees over the numbers."""

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

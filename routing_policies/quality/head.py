"""Head: the logit of one question about a prompt, as a sum of small terms that can be read one by one."""

from __future__ import annotations

from bisect import bisect_left
from math import exp
from operator import mul
from typing import TYPE_CHECKING

import msgspec

from routing_policies.quality.features import LENGTH, Features
from routing_policies.quality.trees import PromptTree, grown_logit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A generalised additive model: a step function of each number, a weight for each word, trees of a few numbers
    each, and a weight for each part of the embedding where it uses that."""

    bias: float
    length: float = 0.0
    """For all characters, squashed as in the features."""
    knots: tuple[tuple[float, ...], ...]
    """For each number where its steps are, ascending."""
    levels: tuple[tuple[float, ...], ...]
    """For each number its term on each side of the knots: one more than there are knots."""
    words: dict[str, float]
    vector: tuple[float, ...] = ()
    """Empty: it does not look at the embedding."""
    trees: tuple[PromptTree, ...] = ()

    def logit(self, features: Features, vector: NDArray[np.float32] | None = None) -> float:
        """Of the features, and of the embedding where the head has weights for it (then it must be given)."""
        total = self.bias + self.length * features.numbers[LENGTH]
        for value, knots, levels in zip(features.numbers, self.knots, self.levels, strict=True):
            total += levels[bisect_left(knots, value)]
        weights = self.words
        for word in features.words:
            if word in weights:
                total += weights[word]
        if self.trees:
            total += grown_logit(self.trees, features.numbers)
        if self.vector:
            assert vector is not None, "a head with weights for an embedding needs one"
            total += float(sum(map(mul, self.vector, vector.tolist())))
        return total


def chance_of(logit: float) -> float:
    """The logistic function, for any argument."""
    if logit >= 0:
        return 1.0 / (1.0 + exp(-min(logit, 500.0)))
    odds = exp(max(logit, -500.0))
    return odds / (1.0 + odds)

"""Trees: a sum of small decision trees, walked in pure Python, since importing a library costs more than it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec


class MatchTree(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A full binary tree of some depth, its inner nodes in breadth-first order: node n goes on at 2n+1 or 2n+2.

    A value not above a node's threshold goes left. A node that decides nothing has the largest threshold there is.
    """

    features: tuple[int, ...]
    thresholds: tuple[float, ...]
    leaves: tuple[float, ...]

    def value(self, row: Sequence[float]) -> float:
        """The leaf's that the row falls into."""
        features, thresholds, node = self.features, self.thresholds, 0
        num_inner = len(features)
        while node < num_inner:
            node = 2 * node + (1 if row[features[node]] <= thresholds[node] else 2)
        return self.leaves[node - num_inner]


def log_odds(trees: Sequence[MatchTree], bias: float, row: Sequence[float]) -> float:
    """What the trees say together."""
    return bias + sum([tree.value(row) for tree in trees])


def logistic(log_odds: float) -> float:
    """The probability with these log odds."""
    if log_odds >= 0:
        return 1.0 / (1.0 + math.exp(-log_odds))
    odds = math.exp(log_odds)
    return odds / (1.0 + odds)


def logit(probability: float) -> float:
    """The log odds of a probability that is neither 0 nor 1."""
    return math.log(probability / (1.0 - probability))

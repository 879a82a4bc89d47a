"""Boosted trees: a sum of small decision trees, walked in pure Python.

A walk costs a few microseconds, less than a library's call does. The semantic cache and the quality predictor share it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

NEVER_RIGHT: Final = 1.7976931348623157e308
"""Threshold of a node that splits nothing."""


class BoostedTree(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A full binary tree; its inner nodes stand in breadth-first order, so node n leads to 2n+1 and 2n+2.

    A value up to a node's threshold leads left.
    """

    features: tuple[int, ...]
    thresholds: tuple[float, ...]
    leaves: tuple[float, ...]


def sum_of_trees(trees: Iterable[BoostedTree], row: Sequence[float]) -> float:
    """Return the sum of the leaves that the row falls into, a term of the log odds."""
    total = 0.0
    for tree in trees:
        features, thresholds, leaves = tree.features, tree.thresholds, tree.leaves
        node, num_inner = 0, len(features)
        while node < num_inner:
            node = node + node + (1 if row[features[node]] <= thresholds[node] else 2)
        total += leaves[node - num_inner]
    return total


def scaled_trees(trees: Iterable[BoostedTree], scale: float, digits: int = 4) -> tuple[BoostedTree, ...]:
    """Return the trees with every leaf multiplied and rounded; no trees for a scale of 0."""
    if not scale:
        return ()
    return tuple(
        msgspec.structs.replace(tree, leaves=tuple(round(scale * leaf, digits) for leaf in tree.leaves))
        for tree in trees
    )


def logistic(log_odds: float) -> float:
    """Return the probability with these log odds, for any argument."""
    if log_odds >= 0:
        return 1.0 / (1.0 + math.exp(-min(log_odds, 500.0)))
    odds = math.exp(max(log_odds, -500.0))
    return odds / (1.0 + odds)


def logit(probability: float) -> float:
    """Return the log odds of a probability that is neither 0 nor 1."""
    return math.log(probability / (1.0 - probability))

"""Fit boosted trees with scikit-learn's histogram booster (extra `learning`) and write them as coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from routing_policies.estimation.boosted_trees import NEVER_RIGHT, BoostedTree

Floats = NDArray[np.float64]
DIGITS: Final = 6


def fit_trees(
    rows: Floats, labels: NDArray[np.bool_], weights: Floats | None = None, **settings: Any
) -> tuple[float, tuple[BoostedTree, ...]]:
    """Fit trees to the log odds that a label holds.

    Args:
        rows: [n, features].
        labels: [n].
        weights: [n], equal weights without them.
        settings: Parameters of `HistGradientBoostingClassifier`; `max_depth` is required.

    Returns:
        The bias and the trees. Labels that are all equal give their clipped log odds and no trees.
    """
    share = float(np.clip(np.average(labels, weights=weights), 1e-3, 1.0 - 1e-3))
    if labels.all() or not labels.any():
        return float(np.log(share / (1.0 - share))), ()
    model = HistGradientBoostingClassifier(early_stopping=False, max_leaf_nodes=None, **settings)
    model.fit(rows, labels, sample_weight=weights)
    depth, values = int(settings["max_depth"]), [np.unique(column) for column in rows.T]
    trees = tuple(_full_tree(predictor.nodes, depth, values) for (predictor,) in model._predictors)
    return float(np.ravel(model._baseline_prediction)[0]), trees


def sums_of_trees(bias: float, trees: tuple[BoostedTree, ...], rows: Floats) -> Floats:
    """Return the log odds of many rows, [n], as `bias + sum_of_trees` gives them one by one."""
    total = np.full(len(rows), bias)
    for tree in trees:
        node = np.zeros(len(rows), np.int64)
        features, thresholds = np.array(tree.features), np.array(tree.thresholds)
        while len(node) and node[0] < len(features):
            node = 2 * node + np.where(rows[np.arange(len(rows)), features[node]] <= thresholds[node], 1, 2)
        total += np.array(tree.leaves)[node - len(features)]
    return total


def _full_tree(nodes: Any, depth: int, values: Sequence[Floats]) -> BoostedTree:
    """Return the grown nodes as a full tree; where growth ended early, everything goes left to the grown leaf."""
    num_inner = 2**depth - 1
    features, thresholds, leaves = [0] * num_inner, [NEVER_RIGHT] * num_inner, [0.0] * (num_inner + 1)
    waiting = [(0, 0)]
    while waiting:
        place, number = waiting.pop()
        node = nodes[number]
        if place >= num_inner:
            leaves[place - num_inner] = round(float(node["value"]), DIGITS)
        elif node["is_leaf"]:
            waiting.append((2 * place + 1, number))
        else:
            features[place] = feature = int(node["feature_idx"])
            thresholds[place] = _between(values[feature], float(node["num_threshold"]))
            waiting += [(2 * place + 1, int(node["left"])), (2 * place + 2, int(node["right"]))]
    return BoostedTree(tuple(features), tuple(thresholds), tuple(leaves))


def _between(values: Floats, threshold: float) -> float:
    """Return a threshold half-way between the values around it: a value stored with fewer digits stays on its side."""
    above = int(np.searchsorted(values, threshold, side="right"))
    near = values[max(above - 1, 0) : above + 1]
    return round(float(near.mean()), DIGITS)

"""Boosting: fits decision trees, each on what the others leave unexplained (Friedman, 2001), on histograms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.cache.similarity.trees import MatchTree, logit

Rows = NDArray[np.float64]
_MAX_BINS: Final = 64
_NEVER: Final = 1.7976931348623157e308


@dataclass(frozen=True, slots=True, kw_only=True)
class Boosting:
    """How to fit. `rising` names features whose growth may never lower the result."""

    num_trees: int = 100
    depth: int = 3
    learning_rate: float = 0.08
    min_rows: int = 100
    ridge: float = 5.0
    """Added to a leaf's curvature: draws small leaves to zero."""
    rising: tuple[int, ...] = (0,)

    def fit(self, rows: Rows, right: NDArray[np.bool_]) -> tuple[list[MatchTree], float]:
        """Trees and bias of the log odds that a row is right."""
        edges = [_edges(column) for column in rows.T]
        bins = np.column_stack([np.searchsorted(edge, column) for edge, column in zip(edges, rows.T, strict=True)])
        bias = logit(float(np.clip(right.mean(), 0.001, 0.999)))
        scores = np.full(len(rows), bias)
        trees = []
        for _ in range(self.num_trees):
            chances = 1.0 / (1.0 + np.exp(-scores))
            tree, step = self._tree(bins, edges, right - chances, chances * (1.0 - chances))
            scores += step
            trees.append(tree)
        return trees, bias

    def _tree(self, bins: NDArray[np.int64], edges: list[Rows], slope: Rows, curve: Rows) -> tuple[MatchTree, Rows]:
        """One tree level by level, and what it adds to each row."""
        num_inner = 2**self.depth - 1
        features, thresholds = [0] * num_inner, [_NEVER] * num_inner
        limits = [(-np.inf, np.inf)] * (2 * num_inner + 1)
        node = np.zeros(len(bins), np.int64)
        for inner in range(num_inner):
            members = np.flatnonzero(node == inner)
            split = self._split(bins[members], edges, slope[members], curve[members], limits[inner])
            node[members] = 2 * inner + 1
            limits[2 * inner + 1] = limits[2 * inner + 2] = limits[inner]
            if split is None:
                continue
            feature, at, middle = split
            features[inner], thresholds[inner] = feature, float(edges[feature][at])
            node[members[bins[members, feature] > at]] = 2 * inner + 2
            if feature in self.rising:
                low, high = limits[inner]
                limits[2 * inner + 1], limits[2 * inner + 2] = (low, middle), (middle, high)
        leaves = [
            self.learning_rate * float(np.clip(self._best(slope[node == leaf], curve[node == leaf]), *limits[leaf]))
            for leaf in range(num_inner, 2 * num_inner + 1)
        ]
        return MatchTree(tuple(features), tuple(thresholds), tuple(leaves)), np.asarray(leaves)[node - num_inner]

    def _best(self, slope: Rows, curve: Rows) -> float:
        """The step that lowers the loss of these rows most."""
        return float(slope.sum() / (curve.sum() + self.ridge))

    def _split(
        self, bins: NDArray[np.int64], edges: list[Rows], slope: Rows, curve: Rows, limits: tuple[float, float]
    ) -> tuple[int, int, float] | None:
        """The feature, the last bin that goes left, and the value between both sides; None when nothing is gained."""
        best: tuple[float, int, int, float] | None = None
        for feature, edge in enumerate(edges):
            if len(edge) == 0 or len(bins) < 2 * self.min_rows:
                continue
            column, size = bins[:, feature], len(edge) + 1
            left_slope = np.cumsum(np.bincount(column, slope, size))[:-1]
            left_curve = np.cumsum(np.bincount(column, curve, size))[:-1]
            left_count = np.cumsum(np.bincount(column, minlength=size))[:-1]
            right_slope, right_curve = slope.sum() - left_slope, curve.sum() - left_curve
            gain = left_slope**2 / (left_curve + self.ridge) + right_slope**2 / (right_curve + self.ridge)
            gain = gain - slope.sum() ** 2 / (curve.sum() + self.ridge)
            left, right = left_slope / (left_curve + self.ridge), right_slope / (right_curve + self.ridge)
            allowed = (left_count >= self.min_rows) & (len(bins) - left_count >= self.min_rows)
            if feature in self.rising:
                allowed &= left <= right
            gain = np.where(allowed, gain, -np.inf)
            at = int(np.argmax(gain))
            if gain[at] > (best[0] if best else 1e-6):
                middle = float(np.clip((left[at] + right[at]) / 2, *limits))
                best = float(gain[at]), feature, at, middle
        return best[1:] if best else None


def _edges(column: Rows) -> Rows:
    """Values that part the column into bins of about equal size; a value that is an edge belongs left of it."""
    values = np.unique(column)
    if len(values) > _MAX_BINS:
        values = np.unique(np.quantile(column, np.linspace(0, 1, _MAX_BINS + 1)[1:-1]))
        return np.asarray(np.round(values, 6))
    return np.asarray(np.round((values[1:] + values[:-1]) / 2, 6))

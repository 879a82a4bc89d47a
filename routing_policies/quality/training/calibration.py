"""Calibration of log odds to observed outcomes (Platt, 1999), and how far predictions are from them."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

Floats = NDArray[np.float64]

_DOUBT: Final = 1e-3
_LEAST_SCALE: Final = 1e-3
"""Least slope: a score without any evidence keeps its order."""
NUM_BINS: Final = 10


def doubled_labels(targets: Floats, weights: Floats) -> tuple[NDArray[np.bool_], Floats, NDArray[np.bool_]]:
    """Return binary labels and weights for fractional targets, and the mask of the 2n rows to keep.

    A row of target t becomes a positive row of weight t and a negative row of weight 1 - t. Rows of weight 0 are
    dropped.
    """
    if targets.min() >= 1.0 or targets.max() <= 0.0:  # a fold may have prompts of one outcome only
        targets = np.clip(targets, _DOUBT, 1.0 - _DOUBT)
    sizes = np.concatenate((weights * targets, weights * np.maximum(1.0 - targets, 0.0)))
    labels = np.repeat([True, False], len(targets))
    used = sizes > 0.0
    return labels[used], sizes[used], used


def probabilities_of(log_odds: Floats) -> Floats:
    """Return the probabilities with these log odds."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(log_odds, -500.0, 500.0))), dtype=np.float64)


def calibrated(scores: Floats, good: Floats, weights: Floats) -> tuple[float, float]:
    """Return the scale and the bias with which scores are the log odds of `good`, a probability; the order is kept."""
    spread = max(float(scores.std()), 1e-9)
    labels, sizes, doubled = doubled_labels(good, weights)
    line = np.concatenate((scores, scores))[doubled, None] / spread
    platt = LogisticRegression(C=1e4).fit(line, labels, sample_weight=sizes)
    scale = max(float(platt.coef_[0, 0]), _LEAST_SCALE)
    if scale > float(platt.coef_[0, 0]):
        share = float(np.clip(np.average(good, weights=weights), 1e-3, 1.0 - 1e-3))
        return scale / spread, float(np.log(share / (1.0 - share)) - scale / spread * scores.mean())
    return scale / spread, float(platt.intercept_[0])


def calibration_error(probabilities: Floats, good: Floats) -> float:
    """Return the mean distance of predicted from observed shares, over ten bins of equally many prompts."""
    order = np.argsort(probabilities, kind="stable")
    bins = [rows for rows in np.array_split(order, NUM_BINS) if len(rows)]
    distances = [abs(float(probabilities[rows].mean() - good[rows].mean())) * len(rows) for rows in bins]
    return sum(distances) / len(order)

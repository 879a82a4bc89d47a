"""Logistic regression with a ridge, by Newton's method."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]

MAX_STEPS: Final = 25
_SMALL: Final = 1e-4


def fit_logistic(rows: Matrix, targets: Floats, ridge: Floats, weights: Floats | None = None) -> Floats:
    """One coefficient a column, minimising log-loss + ridge/2 · coefficient². Targets are chances in [0, 1].

    The first column's ridge may be 0; it is then the intercept's.
    """
    num_rows, num_columns = rows.shape
    weights = np.ones(num_rows) if weights is None else weights
    found = np.zeros(num_columns)
    for _ in range(MAX_STEPS):
        chances = 1.0 / (1.0 + np.exp(-np.clip(rows @ found, -30.0, 30.0)))
        slope = rows.T @ (weights * (chances - targets)) + ridge * found
        spread = np.maximum(weights * chances * (1.0 - chances), 1e-6).astype(np.float32)
        curvature = (rows.T @ (rows * spread[:, None])).astype(np.float64)
        curvature[np.diag_indices(num_columns)] += ridge + 1e-6
        step = np.linalg.solve(curvature, slope)
        found -= step
        if np.abs(step).max() < _SMALL:
            break
    return found

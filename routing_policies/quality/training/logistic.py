"""Logistic regression with a ridge, by Newton's method; each step is solved by conjugate gradients (Nash, 1985).

A table of a thousand columns is fitted a dozen times over in one training, on parts of the same rows: the one
expensive product, rows with themselves, is taken once for all of them, and only guides the gradients.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]

MAX_STEPS: Final = 25
_MAX_INNER: Final = 40
_SMALL: Final = 1e-3
_FORCING: Final = 0.03
"""Of the slope, what a step may leave."""
_USUAL_SPREAD: Final = 0.15
"""Of chances between the extremes: p·(1 − p)."""


def ground_of(rows: Matrix, ridge: Floats) -> Matrix:
    """What fits on any of these rows, with this ridge, are guided by: the inverse of about their curvature."""
    curvature = (rows.T @ rows).astype(np.float64) * _USUAL_SPREAD
    curvature[np.diag_indices(rows.shape[1])] += ridge + 1e-6
    return np.linalg.inv(curvature).astype(np.float32)


def fit_logistic(
    rows: Matrix, targets: Floats, ridge: Floats, weights: Floats | None = None, *, ground: Matrix | None = None
) -> Floats:
    """One coefficient a column, minimising log-loss + ridge/2 · coefficient². Targets are chances in [0, 1].

    The first column's ridge may be 0; it is then the intercept's. A row of weight 0 counts for nothing.
    """
    rows = np.asarray(rows, dtype=np.float32)
    weights = np.ones(len(rows)) if weights is None else weights
    ground = ground_of(rows, ridge) if ground is None else ground
    found = np.zeros(rows.shape[1])
    for _ in range(MAX_STEPS):
        chances = 1.0 / (1.0 + np.exp(-np.clip(_times(rows, found), -30.0, 30.0)))
        slope = _times(rows.T, weights * (chances - targets)) + ridge * found
        spread = np.maximum(weights * chances * (1.0 - chances), 1e-6 * weights)
        step = _newton_step(rows, spread, ridge + 1e-6, slope, ground)
        found -= step
        if np.abs(step).max() < _SMALL:
            break
    return found


def _newton_step(rows: Matrix, spread: Floats, ridge: Floats, slope: Floats, ground: Matrix) -> Floats:
    """Of (rowsᵀ·spread·rows + ridge)·step = slope, nearly the solution."""
    step, rest = np.zeros_like(slope), slope.copy()
    enough = _FORCING * float(np.sqrt(rest @ rest))
    guided = _times(ground, rest)
    way, size = guided.copy(), float(rest @ guided)
    for _ in range(_MAX_INNER):
        if float(np.sqrt(rest @ rest)) <= enough:
            break
        bent = _times(rows.T, spread * _times(rows, way)) + ridge * way
        length = size / float(way @ bent)
        step += length * way
        rest -= length * bent
        guided = _times(ground, rest)
        size, before = float(rest @ guided), size
        way = guided + (size / before) * way
    return step


def _times(matrix: Matrix, vector: Floats) -> Floats:
    """In single precision, or the whole matrix would be copied into double."""
    return np.asarray(matrix @ vector.astype(np.float32), dtype=np.float64)

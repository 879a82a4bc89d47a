"""Confidence sequences for the mean of bounded or heavy-tailed values: valid at every number of values together.

For values x_i >= 0 with conditional means m_i <= 1, and predictions p_i in [0, 1] made from earlier values only,

    E(c) = exp(c * sum(x_i - m_i) - psi(c) * sum((x_i - p_i)^2)),    psi(c) = -log(1 - c) - c,    0 < c < 1,

is a supermartingale that starts at 1 (Fan, Grama and Liu, EJP 2015; Howard, Ramdas, McAuliffe and Sekhon, Annals of
Statistics 2021, theorem 4). So is every mixture of E over fixed c. By Ville's inequality it ever reaches 1/alpha with
probability at most alpha, which bounds sum(x_i - m_i) from above, and the mean of the m_i from below, at all times
together. The values need no upper bound: importance weights may be large (Waudby-Smith, Wu, Ramdas, Karampatziakis and
Mineiro, "Anytime-valid off-policy inference for contextual bandits", 2022). The m_i may drift: the bound is on their
mean so far, whatever it is.
"""

from __future__ import annotations

from math import log
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_RATES: Final = 0.9 * 0.5 ** np.arange(10)
"""Rates c of the mixture. The best one is near sqrt(2 * log(1/alpha) / sum of squares); these suit up to a million."""
_NEWTON_STEPS: Final = 12
_NEUTRAL: Final = 0.5
"""Prediction of the first value."""


def lower_bounds(values: Floats, least: float, alpha: float, at: Counts | None = None) -> Floats:
    """Return lower bounds of the mean of the values' conditional means, after each value or after those `at`.

    Args:
        values: Values in the order in which they came, each at least `-least`; their conditional means are at most 1.
        least: How far below 0 a value may lie; known before the values are.
        alpha: Probability that any of the bounds is wrong, over all numbers of values together.
        at: Numbers of values, from 1, after which bounds are wanted; None means every number.
    """
    scaled = (values + least) / (least + 1.0)
    sums = np.cumsum(scaled)
    counts = np.arange(1, len(scaled) + 1)
    before = np.concatenate(([0.0], sums[:-1]))
    predicted = np.minimum((before + _NEUTRAL) / counts, 1.0)
    squares = np.cumsum((scaled - predicted) ** 2)
    if at is not None:
        sums, squares, counts = sums[at - 1], squares[at - 1], at
    lowest = (sums - _largest_excess(squares, alpha)) / counts
    return np.maximum(lowest, 0.0) * (least + 1.0) - least


def _largest_excess(squares: Floats, alpha: float) -> Floats:
    """Return the excess s at which the mixture reaches 1/alpha, for each sum of squares."""
    penalty = (-np.log1p(-_RATES) - _RATES)[None, :] * squares[:, None]
    limit = log(len(_RATES) / alpha)
    excess = ((limit + penalty) / _RATES).min(axis=1)  # each rate alone: never below the mixture's
    for _ in range(_NEWTON_STEPS):  # the logarithm of the mixture is convex, so steps from above stay above
        exponents = _RATES * excess[:, None] - penalty
        top = exponents.max(axis=1)
        terms = np.exp(exponents - top[:, None])
        whole = terms.sum(axis=1)
        slope = (terms * _RATES).sum(axis=1) / whole
        excess = excess - (top + np.log(whole) - limit) / slope
    return np.asarray(excess, dtype=np.float64)

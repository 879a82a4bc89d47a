"""Fit of what holds within every kind of work: differences between kinds are removed before the fit.

On prompts of a kind that was left out, models of the whole training order prompts as at random: they know
averages of topics (LLMRouterBench, 2026). What remains inside the kinds carries over, and the length most of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from routing_policies.quality.cues import CUES
from routing_policies.quality.features import LENGTH, NUMBERS, Features
from routing_policies.quality.general import GeneralHead
from routing_policies.quality.training.calibration import calibrated
from routing_policies.quality.training.feature_table import rounded

Floats = NDArray[np.float64]
Names = NDArray[np.str_]

NUM_GENERAL: Final = len(NUMBERS) - len(CUES)
"""Number of leading numbers that are read: all but the words of kinds of work."""
LENGTH_SHARE: Final = 0.15
"""Loss, in standard deviations of the outcome, that one standard deviation of length stands for before any evidence.

Chosen with kinds left out of MMLU-Pro and LLMRouter: the largest share of other numbers with which no kind is ordered
worse than by length.
"""

EMPHASIS: Final = 2.0
"""Factor on the log odds: beside a wrongly recognized kind, what holds everywhere still decides."""


def fitted_general(features: Sequence[Features], targets: Floats, weights: Floats, kinds: Names) -> GeneralHead:
    """Return the head that orders prompts inside a kind, calibrated on all of them.

    Args:
        features: Features of each prompt.
        targets: 1 minus the quality that the weaker model lost; above 1 where it is the better one, [n].
        weights: Weight of each prompt, [n].
        kinds: Kind of work of each prompt, [n].
    """
    numbers = numbers_of(features)
    spread = numbers.std(axis=0)
    divisor = np.where(spread > 0.0, spread, np.inf)
    gained, inside = inside_kinds(targets, weights, kinds), inside_kinds(numbers / divisor, weights, kinds)
    ridge = Ridge(alpha=float(weights.sum()), fit_intercept=False).fit(inside, gained, sample_weight=weights)
    ridge.coef_[LENGTH] -= LENGTH_SHARE * float(targets.std())
    found = ridge.coef_ / divisor
    scores = numbers @ found
    scale, bias = calibrated(scores, np.clip(targets, 0.0, 1.0), weights)
    bias -= (EMPHASIS - 1.0) * scale * float(scores.mean())
    return GeneralHead(bias=round(bias, 4), weights=tuple(rounded(EMPHASIS * scale * found)))


def numbers_of(features: Sequence[Features]) -> Floats:
    """Return the numbers that a general head reads, [n, NUM_GENERAL]."""
    return np.array([one.numbers[:NUM_GENERAL] for one in features])


def inside_kinds(values: Floats, weights: Floats, kinds: Names) -> Floats:
    """Return the values less the mean of their kind, [n] or [n, columns]."""
    found = values.astype(np.float64)
    for kind in np.unique(kinds):
        rows = kinds == kind
        found[rows] -= np.average(found[rows], axis=0, weights=weights[rows])
    return found

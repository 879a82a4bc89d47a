"""Calibration: recalibration of the match probability from what audits find."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.cache.similarity.decision import Calibration
from routing_policies.estimation.boosted_trees import logistic, logit

PRIOR_VERDICTS: Final = 50.0
"""Number of audits that the shipped calibration counts for against those of a tenant and route."""
_MIN_SLOPE: Final = 0.2
_MAX_STEPS: Final = 50
_MAX_HALVINGS: Final = 20
_LEAST_GAIN: Final = 1e-9
_EDGE: Final = 1e-6


class CalibrationSample(msgspec.Struct, frozen=True, gc=False):
    """One audited response: its match probability, its verdict, and how many hits it stands for."""

    match_probability: float
    is_right: bool
    weight: float = 1.0


def recalibrate(shipped: Calibration, verdicts: Iterable[CalibrationSample]) -> Calibration:
    """Return the calibration most likely after these verdicts, whose probabilities are those of the `shipped` one.

    Platt's fit (1999) of a line on the log odds, with a normal prior at the line that changes nothing: few verdicts
    move it little. Weights are scaled so that they sum to as many as there are verdicts.
    """
    seen = [verdict for verdict in verdicts if 0.0 < verdict.match_probability < 1.0 and verdict.weight > 0.0]
    if not seen:
        return shipped
    scale = len(seen) / sum(verdict.weight for verdict in seen)
    odds = np.array([logit(min(1 - _EDGE, max(_EDGE, verdict.match_probability))) for verdict in seen])
    right = np.array([verdict.is_right for verdict in seen], dtype=np.float64)
    weights = np.array([verdict.weight * scale for verdict in seen])
    slope, shift = _platt(odds, right, weights)
    return Calibration(slope=shipped.slope * slope, shift=slope * shipped.shift + shift)


def _platt(odds: NDArray[np.float64], right: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, float]:
    """Return slope and shift, by Newton's method with halved steps on the penalised log likelihood around (1, 0)."""
    inputs = np.column_stack([odds, np.ones_like(odds)])
    neutral, prior = np.array([1.0, 0.0]), _prior(float(np.average(odds, weights=weights)))

    def loss(line: NDArray[np.float64]) -> float:
        fitted, moved = inputs @ line, line - neutral
        return float(weights @ (np.logaddexp(0.0, fitted) - right * fitted) + 0.5 * moved @ prior @ moved)

    line, reached = neutral, loss(neutral)
    for _ in range(_MAX_STEPS):
        match_probabilities = 1.0 / (1.0 + np.exp(-np.clip(inputs @ line, -30, 30)))
        slope = inputs.T @ (weights * (right - match_probabilities)) - prior @ (line - neutral)
        curve = (inputs * (weights * match_probabilities * (1 - match_probabilities))[:, None]).T @ inputs + prior
        step, before = np.linalg.solve(curve, slope), reached
        tried = (line + step / 2**halvings for halvings in range(_MAX_HALVINGS))
        line = next((each for each in tried if loss(each) <= before), line)
        reached = loss(line)
        if before - reached < _LEAST_GAIN:
            break
    return max(_MIN_SLOPE, float(line[0])), float(line[1])


def _prior(middle: float) -> NDArray[np.float64]:
    """Return the prior's curvature: PRIOR_VERDICTS audits at the mean log odds, twice as many for the slope."""
    match_probability = logistic(middle)
    strength = PRIOR_VERDICTS * match_probability * (1.0 - match_probability)
    across = np.array([middle, 1.0])
    return np.asarray(strength * np.outer(across, across) + np.diag([2.0 * strength, 0.0]) + 1e-6 * np.eye(2))

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
"""So many audits at the calibration that ships weigh as much as the audits of a tenant and route."""
_MIN_SLOPE: Final = 0.2
_MAX_STEPS: Final = 50
_EDGE: Final = 1e-6


class CalibrationSample(msgspec.Struct, frozen=True, gc=False):
    """One audited answer: the chance it was given, whether it was right, and how many it stands for."""

    chance: float
    is_right: bool
    weight: float = 1.0


def recalibrate(shipped: Calibration, verdicts: Iterable[CalibrationSample]) -> Calibration:
    """The calibration most likely after these verdicts, whose chances are those of the `shipped` one.

    Platt's fit (1999) of a line on the log odds, with a normal prior at the line that changes nothing: few verdicts
    move it little. Weights are scaled so that they sum to as many as there are verdicts.
    """
    seen = [verdict for verdict in verdicts if 0.0 < verdict.chance < 1.0 and verdict.weight > 0.0]
    if not seen:
        return shipped
    scale = len(seen) / sum(verdict.weight for verdict in seen)
    odds = np.array([logit(min(1 - _EDGE, max(_EDGE, verdict.chance))) for verdict in seen])
    right = np.array([verdict.is_right for verdict in seen], dtype=np.float64)
    weights = np.array([verdict.weight * scale for verdict in seen])
    slope, shift = _platt(odds, right, weights)
    return Calibration(slope=shipped.slope * slope, shift=slope * shipped.shift + shift)


def _platt(odds: NDArray[np.float64], right: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, float]:
    """Newton's steps, halved while they do not help, on the penalised log likelihood around slope 1 and shift 0."""
    line = np.array([1.0, 0.0])
    middle = float(np.average(odds, weights=weights))
    inputs = np.column_stack([odds, np.ones_like(odds)])
    prior = _prior(middle)
    loss = _loss(line, inputs, right, weights, prior)
    for _ in range(_MAX_STEPS):
        chances = 1.0 / (1.0 + np.exp(-np.clip(inputs @ line, -30, 30)))
        slope = inputs.T @ (weights * (right - chances)) - prior @ (line - [1.0, 0.0])
        curve = (inputs * (weights * chances * (1 - chances))[:, None]).T @ inputs + prior
        step = np.linalg.solve(curve, slope)
        line, before, loss = _walked(line, step, loss, inputs, right, weights, prior)
        if before - loss < 1e-9:
            break
    return max(_MIN_SLOPE, float(line[0])), float(line[1])


def _prior(middle: float) -> NDArray[np.float64]:
    """Its curvature: PRIOR_VERDICTS audits at the mean log odds for the shift there, twice as many for the slope."""
    chance = logistic(middle)
    strength = PRIOR_VERDICTS * chance * (1.0 - chance)
    across = np.array([middle, 1.0])
    return np.asarray(strength * np.outer(across, across) + np.diag([2.0 * strength, 0.0]) + 1e-6 * np.eye(2))


def _loss(
    line: NDArray[np.float64],
    inputs: NDArray[np.float64],
    right: NDArray[np.float64],
    weights: NDArray[np.float64],
    prior: NDArray[np.float64],
) -> float:
    told = inputs @ line
    moved = line - np.array([1.0, 0.0])
    return float(weights @ (np.logaddexp(0.0, told) - right * told) + 0.5 * moved @ prior @ moved)


def _walked(
    line: NDArray[np.float64],
    step: NDArray[np.float64],
    loss: float,
    inputs: NDArray[np.float64],
    right: NDArray[np.float64],
    weights: NDArray[np.float64],
    prior: NDArray[np.float64],
) -> tuple[NDArray[np.float64], float, float]:
    for halvings in range(20):
        tried = line + step / 2**halvings
        reached = _loss(tried, inputs, right, weights, prior)
        if reached <= loss:
            return tried, loss, reached
    return line, loss, loss

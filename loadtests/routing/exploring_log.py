"""Simulated logs of an exploring router, with the true mean of a policy that it never ran."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from routing_policies.off_policy.estimates import (
    Series,
    WeighedChoice,
    WidthPoint,
    estimate,
    estimate_difference,
    weigh,
)

CANDIDATES: Final = ("small", "large", "third")


class ExploringLog(NamedTuple):
    """A simulated log, weighed for one policy that never ran, and for the one that ran."""

    choices: list[WeighedChoice]
    ran: list[WeighedChoice]
    outcomes: list[float]
    truths: NDArray[np.float64]
    """Expected outcome of each request under the policy that never ran."""
    ran_truths: NDArray[np.float64]
    """Expected outcome of each request under the policy that ran."""

    @property
    def series(self) -> Series:
        """The log as it tells about the policy that never ran."""
        return Series(self.choices, self.outcomes)

    @property
    def ran_series(self) -> Series:
        """The log as it tells about the policy that ran."""
        return Series(self.ran, self.outcomes)


def exploring_log(seed: int, num: int, *, ratio: float = 0.05, drifts: bool = False) -> ExploringLog:
    """Return a log in which `small` is preferred and easy requests suit it; the evaluated policy prefers another.

    With `drifts` every outcome gets steadily worse, and the evaluated policy changes in the middle.
    """
    rng = random.Random(seed)
    choices: list[WeighedChoice] = []
    ran: list[WeighedChoice] = []
    outcomes: list[float] = []
    truths: list[float] = []
    ran_truths: list[float] = []
    for place in range(num):
        is_easy = rng.random() < 0.6
        fade = 1.0 - 0.5 * place / num if drifts else 1.0
        expected = {
            "small": fade * (0.9 if is_easy else 0.45),
            "large": fade * 0.93,
            "third": fade * (0.2 if is_easy else 0.8),
        }
        preferred = "small" if is_easy or rng.random() < 0.5 else "third"
        recorded = {name: (1.0 - ratio) * (name == preferred) + ratio / len(CANDIDATES) for name in CANDIDATES}
        target = _target(is_easy, is_late=drifts and place > num // 2)
        chosen = rng.choices(CANDIDATES, [recorded[name] for name in CANDIDATES])[0]
        choices.append(weigh(chosen, (is_easy,), recorded, target))
        ran.append(weigh(chosen, (is_easy,), recorded, recorded))
        outcomes.append(float(rng.random() < expected[chosen]))
        truths.append(sum(share * expected[name] for name, share in target.items()))
        ran_truths.append(sum(share * expected[name] for name, share in recorded.items()))
    return ExploringLog(choices, ran, outcomes, np.array(truths), np.array(ran_truths))


def _target(is_easy: bool, *, is_late: bool) -> Mapping[str, float]:
    if is_late:
        return {"third": 0.5, "small": 0.5}
    return {"small": 0.3, "large": 0.7} if is_easy else {"large": 1.0}


class Misses(NamedTuple):
    """Failures of a log's intervals: each is True if its interval excluded the mean so far after any request."""

    propensity: bool
    doubly_robust: bool
    difference_propensity: bool
    difference_doubly_robust: bool


def misses(log: ExploringLog, num_warm: int) -> Misses:
    """Return the misses of the policy that never ran, and of its difference from the one that ran."""
    places = range(1, len(log.choices) - num_warm)
    found = estimate(log.series, num_warm, checkpoints=places)
    gap = estimate_difference(log.series, log.ran_series, num_warm, checkpoints=places)
    truths, gaps = log.truths[num_warm:], (log.truths - log.ran_truths)[num_warm:]
    return Misses(*_missed(found.widths, truths), *_missed(gap.widths, gaps))


def _missed(widths: tuple[WidthPoint, ...], truths: NDArray[np.float64]) -> tuple[bool, bool]:
    """Return whether the intervals by propensity and doubly robust ever exclude the mean so far."""
    means = np.cumsum(truths) / np.arange(1, len(truths) + 1)
    sides = [np.array([getattr(point, name) for point in widths]) for name in ("propensity", "doubly_robust")]
    assert all(len(side) == len(truths) for side in sides)
    missed = [bool(((side[:, 0] > means + 1e-9) | (side[:, 1] < means - 1e-9)).any()) for side in sides]
    return missed[0], missed[1]

"""Simulated logs of an exploring router, with the true mean of a policy that it never ran."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from routing_policies.off_policy.estimates import WeighedChoice, estimate, weigh

CANDIDATES: Final = ("small", "large", "third")


class ExploringLog(NamedTuple):
    """A simulated log, weighed for one policy that never ran."""

    choices: list[WeighedChoice]
    outcomes: list[float]
    truths: NDArray[np.float64]
    """Expected outcome of each request under that policy."""


def exploring_log(seed: int, num: int, *, ratio: float = 0.05, drifts: bool = False) -> ExploringLog:
    """Return a log in which `small` is preferred and easy requests suit it; the evaluated policy prefers another.

    With `drifts` every outcome gets steadily worse, and the evaluated policy changes in the middle.
    """
    rng = random.Random(seed)
    choices: list[WeighedChoice] = []
    outcomes: list[float] = []
    truths: list[float] = []
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
        outcomes.append(float(rng.random() < expected[chosen]))
        truths.append(sum(share * expected[name] for name, share in target.items()))
    return ExploringLog(choices, outcomes, np.array(truths))


def _target(is_easy: bool, *, is_late: bool) -> Mapping[str, float]:
    if is_late:
        return {"third": 0.5, "small": 0.5}
    return {"small": 0.3, "large": 0.7} if is_easy else {"large": 1.0}


def misses(log: ExploringLog, num_warm: int) -> tuple[bool, bool]:
    """Return whether the intervals by propensity and doubly robust ever exclude the mean so far, after any request."""
    num = len(log.choices) - num_warm
    found = estimate(log.choices, log.outcomes, num_warm, checkpoints=range(1, num))
    means = np.cumsum(log.truths[num_warm:]) / np.arange(1, num + 1)
    sides = [np.array([getattr(point, name) for point in found.widths]) for name in ("propensity", "doubly_robust")]
    assert all(len(side) == num for side in sides)
    missed = [bool(((side[:, 0] > means + 1e-9) | (side[:, 1] < means - 1e-9)).any()) for side in sides]
    return missed[0], missed[1]

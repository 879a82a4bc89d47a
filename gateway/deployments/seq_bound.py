"""SequenceBound: the number of requests a deployment may run at once while tokens come within a lane's target."""

from __future__ import annotations

import math
from typing import Final

from gateway.deployments.forecast import DeploymentForecast

REFRESH_S: Final = 0.25
MAX_SEQS: Final = 1024
RESERVED_SEQS_DIVISOR: Final = 16
"""Divisor of the rows that the bundled engine reserves for short prompts."""


class SequenceBound:
    """Schedule of recomputing one deployment's bound, for the tightest target since the last time."""

    __slots__ = ("due_at", "tightest_s")

    def __init__(self) -> None:
        self.due_at = -math.inf
        """Instant of the next computation."""
        self.tightest_s = math.inf
        """Tightest target since the last computation, in seconds per token."""

    def target_due(self, now: float, tpot_slo_s: float) -> float | None:
        """Return the target to compute the bound for, or None when it is too soon."""
        if tpot_slo_s < self.tightest_s:
            self.tightest_s = tpot_slo_s
        if now < self.due_at:
            return None
        self.due_at = now + REFRESH_S
        target_s, self.tightest_s = self.tightest_s, tpot_slo_s
        return target_s


def seqs_within(forecast: DeploymentForecast, now: float, tpot_s: float) -> int | None:
    """Return the largest number of requests that get a row at once with tokens within `tpot_s`; None for any number.

    More requests than rows would wait in the engine's own queue, where targets do not apply. The rows that it reserves
    for short prompts are left free, because long prompts could not start otherwise.
    """
    paced, there = _seqs_in_pace(forecast, now, tpot_s), forecast.max_num_seqs
    if not there:
        return paced
    there -= there // RESERVED_SEQS_DIVISOR
    return there if paced is None else min(paced, there)


def _seqs_in_pace(forecast: DeploymentForecast, now: float, tpot_s: float) -> int | None:
    """Return the largest number of rows within the target.

    None where one row already misses the target, as no bound would help, and where any number of rows meets it.
    """
    if forecast.tpot_s(now, 1) > tpot_s or forecast.tpot_s(now, MAX_SEQS) <= tpot_s:
        return None
    fits, misses = 1, MAX_SEQS
    while misses - fits > 1:
        middle = (fits + misses) // 2
        if forecast.tpot_s(now, middle) <= tpot_s:
            fits = middle
        else:
            misses = middle
    return fits

"""RowBound: how many requests a deployment may run at once before tokens come slower than a lane wants them."""

from __future__ import annotations

import math
from typing import Final

from gateway.deployments.forecast import DeploymentForecast

REFRESH_S: Final = 0.25
MAX_ROWS: Final = 1024
KEPT_ROWS_DIVISOR: Final = 16
"""One of so many rows the bundled engine keeps for short prompts."""


class RowBound:
    """When one deployment's bound is worked out anew, and for which target: the tightest that was asked for since."""

    __slots__ = ("due_at", "tightest_s")

    def __init__(self) -> None:
        self.due_at = -math.inf
        """When it is next worked out."""
        self.tightest_s = math.inf
        """A target that is no tighter changes nothing before that."""

    def target_due(self, now: float, tpot_slo_s: float) -> float | None:
        """The target for which to work out the bound now, None when it is too soon."""
        if tpot_slo_s < self.tightest_s:
            self.tightest_s = tpot_slo_s
        if now < self.due_at:
            return None
        self.due_at = now + REFRESH_S
        target_s, self.tightest_s = self.tightest_s, tpot_slo_s
        return target_s


def rows_within(forecast: DeploymentForecast, now: float, tpot_s: float) -> int | None:
    """The most requests that get a row at once and beside which tokens come within `tpot_s`; None for any number.

    More than there are rows would stand in the engine's own queue, where targets do not count; and the few that it
    keeps for short prompts would, if we filled them, let none of the long ones start.
    """
    paced, there = _rows_in_pace(forecast, now, tpot_s), forecast.max_num_seqs
    if not there:
        return paced
    there -= there // KEPT_ROWS_DIVISOR
    return there if paced is None else min(paced, there)


def _rows_in_pace(forecast: DeploymentForecast, now: float, tpot_s: float) -> int | None:
    """None where not even one row is, for then no bound would help."""
    if forecast.tpot_s(now, 1) > tpot_s or forecast.tpot_s(now, MAX_ROWS) <= tpot_s:
        return None
    fits, misses = 1, MAX_ROWS
    while misses - fits > 1:
        middle = (fits + misses) // 2
        if forecast.tpot_s(now, middle) <= tpot_s:
            fits = middle
        else:
            misses = middle
    return fits

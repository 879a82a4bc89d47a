"""RowBound: how many requests a deployment may run at once before tokens come slower than a lane wants them."""

from __future__ import annotations

import math
from typing import Final

from gateway.routing.forecast import DeploymentForecast

REFRESH_S: Final = 0.25
MAX_ROWS: Final = 1024


class RowBound:
    """When one deployment's bound is worked out anew, and for which target: the tightest that was asked for since."""

    __slots__ = ("_due_at", "_tightest_s")

    def __init__(self) -> None:
        self._due_at = -math.inf
        self._tightest_s = math.inf

    def target_due(self, now: float, tpot_slo_s: float) -> float | None:
        """The target for which to work out the bound now, None when it is too soon."""
        self._tightest_s = min(self._tightest_s, tpot_slo_s)
        if now < self._due_at:
            return None
        self._due_at = now + REFRESH_S
        target_s, self._tightest_s = self._tightest_s, tpot_slo_s
        return target_s


def rows_within(forecast: DeploymentForecast, now: float, tpot_s: float) -> int | None:
    """The most rows beside which tokens come within `tpot_s`; None for any number, and where not even one does, for
    then no bound would help."""
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

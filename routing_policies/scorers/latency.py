"""Scorer for candidates with a low TTFT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView

FLOOR_S: Final = 0.001
"""TTFT in seconds below which forecasts count as equal."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Score by the forecast TTFT relative to the shortest.

    The forecast covers the gateway's queue, the engine's queue and the uncached prefill. A replica that holds the
    prompt's prefix wins unless its queue is longer than the saving.
    """

    name: str = "latency"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return the shortest forecast / forecast; 0 without a forecast, unless none has one."""
        return relative([view.forecast_ttft_s for view in views], FLOOR_S)


def relative(seconds: Sequence[float | None], floor_s: float) -> list[float]:
    """Return least / own for each value; 0 for unknown ones, unless all are. Values below `floor_s` count as equal."""
    known = [found for found in seconds if found is not None] if None in seconds else cast(Sequence[float], seconds)
    if not known:
        return [1.0] * len(seconds)
    least = min(known)
    if least < floor_s:
        least = floor_s
    if known is seconds:
        return [least / found if found > least else 1.0 for found in known]
    return [0.0 if found is None else least / max(found, least) for found in seconds]

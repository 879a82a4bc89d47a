"""Prefers candidates that answer soon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView

FLOOR_S: Final = 0.001
"""Below it forecasts do not differ."""


@dataclass(frozen=True, slots=True)
class Latency:
    """The forecast time to the first token, gateway queue, engine queue and uncached prefill together, relative to the
    shortest. A replica that holds the prompt's prefix has that much less to compute, and wins unless its queue is
    longer than the saving."""

    name: str = "latency"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """shortest forecast / forecast; 0 without one, unless nobody has one."""
        return relative([view.forecast_ttft_s for view in views], FLOOR_S)


def relative(seconds: Sequence[float | None], floor_s: float) -> list[float]:
    """Of each its part of the least; 0 for what is not known, unless nothing is. Below the floor they are equal."""
    known = [found for found in seconds if found is not None] if None in seconds else cast(Sequence[float], seconds)
    if not known:
        return [1.0] * len(seconds)
    least = min(known)
    if least < floor_s:
        least = floor_s
    if known is seconds:
        return [least / found if found > least else 1.0 for found in known]
    return [0.0 if found is None else least / max(found, least) for found in seconds]

"""Prefers candidates that answer soon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView

FLOOR_S: Final = 0.001
"""Below it forecasts do not differ."""
_forecast_of: Final = attrgetter("forecast_ttft_s")


@dataclass(frozen=True, slots=True)
class Latency:
    """The forecast time to the first token, gateway queue, engine queue and uncached prefill together, relative to the
    shortest. A replica that holds the prompt's prefix has that much less to compute, and wins unless its queue is
    longer than the saving."""

    name: str = "latency"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """shortest forecast / forecast; 0 without one, unless nobody has one."""
        return relative(list(map(_forecast_of, views)), FLOOR_S)


def relative(seconds: Sequence[float | None], floor_s: float) -> list[float]:
    """Of each its part of the least; 0 for what is not known, unless nothing is. Below the floor they are equal."""
    known = [floor_s if found < floor_s else found for found in seconds if found is not None]
    if not known:
        return [1.0] * len(seconds)
    least = min(known)
    if len(known) == len(seconds):
        return [least / found for found in known]
    return [0.0 if found is None else least / max(found, floor_s) for found in seconds]

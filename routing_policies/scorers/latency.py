"""Prefers candidates that answer soon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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
        forecasts = [_or_floor(view.forecast_ttft_s) for view in views]
        shortest = min((found for found in forecasts if found is not None), default=None)
        if shortest is None:
            return [1.0] * len(views)
        return [0.0 if found is None else shortest / found for found in forecasts]


def _or_floor(seconds: float | None) -> float | None:
    return None if seconds is None else max(seconds, FLOOR_S)

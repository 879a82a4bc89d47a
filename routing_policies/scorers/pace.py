"""Prefers candidates that write fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from routing_policies.scorers.latency import relative
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView

_FLOOR_S: Final = 1e-5


@dataclass(frozen=True, slots=True)
class OutputSpeed:
    """Seconds per output token beside the rows that run now, relative to the fastest."""

    name: str = "pace"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """fastest / own; 0 where it is not known, unless it is known of nobody."""
        return relative([view.tpot_s for view in views], _FLOOR_S)

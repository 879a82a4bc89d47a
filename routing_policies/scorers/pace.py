"""Scorer for candidates with fast output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from routing_policies.scorers.latency import relative
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView

_FLOOR_S: Final = 1e-5


@dataclass(frozen=True, slots=True)
class OutputSpeed:
    """Score by the seconds per output token beside the running rows, relative to the fastest."""

    name: str = "pace"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return fastest / own; 0 where it is unknown, unless it is for all."""
        return relative([view.tpot_s for view in views], _FLOOR_S)

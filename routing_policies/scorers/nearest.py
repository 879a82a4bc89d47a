"""Scorer for candidates in the zone that is nearest by its measured round trip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Nearest:
    """Score by the place of a candidate's zone, from near to far."""

    name: str = "nearest"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return 1 / (1 + place)."""
        return [1.0 / (1 + view.distance) for view in views]

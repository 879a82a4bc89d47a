"""Scorer for candidates near the gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Zone:
    """Score by equal zones; a deployment or gateway without a zone matches every other."""

    name: str = "zone"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return 1 in the gateway's zone, 0 in another."""
        here = attempt.zone
        if here is None:
            return [1.0] * len(views)
        return [1.0 if view.zone is None or view.zone == here else 0.0 for view in views]

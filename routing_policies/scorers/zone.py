"""Prefers candidates near the gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Zone:
    """Whether the deployment is where this gateway runs; a deployment or gateway without a zone is everywhere."""

    name: str = "zone"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """1 in the same zone, 0 in another."""
        here = attempt.zone
        if here is None:
            return [1.0] * len(views)
        return [1.0 if view.zone is None or view.zone == here else 0.0 for view in views]

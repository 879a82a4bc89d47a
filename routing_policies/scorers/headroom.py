"""Scorer for candidates with free permits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Headroom:
    """Score by the share of free permits, so a large deployment takes more than a small one."""

    name: str = "headroom"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return 1 - in_flight / max_in_flight, at least 0."""
        return [
            1.0 - view.in_flight / view.max_in_flight if view.in_flight < view.max_in_flight else 0.0 for view in views
        ]

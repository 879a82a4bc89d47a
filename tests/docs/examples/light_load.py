"""Prefers deployments that are at most half full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class LightLoad:
    """1 up to half of the permits, then falling to 0 when every permit is out."""

    name: str = "light_load"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return one score in [0, 1] for each view, in their order."""
        return [min(1.0, max(0.0, 2.0 - 2.0 * view.load_ratio)) for view in views]

"""Prefers candidates by their configured weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Share:
    """Weights relative to the heaviest, so that they keep their proportions inside [0, 1]."""

    name: str = "share"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """weight / heaviest weight."""
        heaviest = max(view.weight for view in views)
        return [view.weight / heaviest for view in views]

"""Scorer by the configured weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Share:
    """Score by the weight relative to the heaviest, which keeps proportions inside [0, 1]."""

    name: str = "share"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return weight / heaviest weight."""
        heaviest = max(view.weight for view in views)
        return [view.weight / heaviest for view in views]

"""Prefers candidates that answer better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class QualityScore:
    """What the policy says of the deployment: absolute, because it is a share already."""

    name: str = "quality"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """As it is."""
        return [view.quality for view in views]

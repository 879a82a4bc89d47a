"""Scorer for candidates with a high quality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class QualityScore:
    """Score by the predicted or configured quality, which is a share already."""

    name: str = "quality"

    @property
    def quality_threshold(self) -> float | None:
        """None: no quality is too low."""
        return None

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return the quality of each candidate."""
        return [view.quality for view in views]

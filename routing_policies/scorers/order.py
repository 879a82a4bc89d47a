"""Scorer in the order that the route lists its candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Order:
    """Score from 1 for the first evenly down to 1/n for the last of n."""

    name: str = "order"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return (n - position) / n."""
        return [(len(views) - position) / len(views) for position in range(len(views))]

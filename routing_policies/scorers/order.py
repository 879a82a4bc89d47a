"""Prefers candidates in the order the route lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Order:
    """1 for the first, then evenly down; the last of n gets 1/n."""

    name: str = "order"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """(n - position) / n."""
        return [(len(views) - position) / len(views) for position in range(len(views))]

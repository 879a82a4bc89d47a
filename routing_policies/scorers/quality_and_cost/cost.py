"""Scorer for candidates with a low cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class Cost:
    """Score by the cost of the request at the policy's prices, relative to the cheapest."""

    name: str = "cost"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return cheapest / own cost, 1 for free candidates; 0 without a price, unless none has one."""
        cheapest = min((view.cost for view in views if view.cost is not None), default=None)
        if cheapest is None:
            return [1.0] * len(views)
        return [_relative(cheapest, view.cost) for view in views]


def _relative(cheapest: float, cost: float | None) -> float:
    if cost is None:
        return 0.0
    return 1.0 if cost <= 0.0 else cheapest / cost

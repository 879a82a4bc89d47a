"""Scorer for the best candidate within a cost cap, and beyond it for the cheapest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.decision import Cause
from routing_policies.scorers.quality_and_cost.cost import Cost
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class CostCap:
    """Score in two halves: candidates within the cap are above the others. A candidate without a price is beyond it."""

    max_cost: float
    name: str = "cost_cap"

    @property
    def quality_threshold(self) -> float | None:
        """None: no quality is too low."""
        return None

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return 0.5 + half the quality within the cap, just under half the cost score beyond it."""
        costs = Cost().scores(views)
        return [
            0.5 + view.quality / 2 if self._is_within(view) else 0.499 * cost
            for view, cost in zip(views, costs, strict=True)
        ]

    def cause(self, chosen: DeploymentView, attempt: Attempt) -> Cause:
        """Return the side of the cap."""
        return "within_cap" if self._is_within(chosen) else "over_cap"

    def _is_within(self, view: DeploymentView) -> bool:
        return view.cost is not None and view.cost <= self.max_cost

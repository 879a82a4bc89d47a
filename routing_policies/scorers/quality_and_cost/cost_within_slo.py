"""Scorer for the cheapest candidate that meets the latency targets, else for the fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from routing_policies.scorers.latency import Latency
from routing_policies.scorers.quality_and_cost.cost import Cost
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView

MARGIN: Final = 0.85
"""Share of the target that a forecast may reach, because forecasts err."""


@dataclass(frozen=True, slots=True)
class CostWithinSlo:
    """Score in two halves: candidates forecast to meet the targets are above the others.

    Without targets all candidates meet them.
    """

    name: str = "cost_within_slo"

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return 0.5 + half the cost score within the targets, half the latency score beyond them."""
        costs, latencies = Cost().scores(views), Latency().scores(views)
        return [
            0.5 + cost / 2 if meets(view, attempt) else latency / 2
            for view, cost, latency in zip(views, costs, latencies, strict=True)
        ]


def meets(view: DeploymentView, attempt: Attempt) -> bool:
    """Return whether the candidate is forecast to meet the attempt's targets; without a forecast it is not."""
    return _is_within(view.forecast_ttft_s, attempt.ttft_slo_s) and _is_within(view.tpot_s, attempt.tpot_slo_s)


def _is_within(forecast_s: float | None, slo_s: float | None) -> bool:
    return slo_s is None or (forecast_s is not None and forecast_s <= MARGIN * slo_s)

"""Scorer for the cheapest candidate that is good enough, among those that meet the latency targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.decision import Cause
from routing_policies.scorers.latency import Latency
from routing_policies.scorers.quality_and_cost.cost import Cost
from routing_policies.scorers.quality_and_cost.cost_within_slo import meets
from routing_policies.views import FIRST_ATTEMPT, Attempt, DeploymentView


@dataclass(frozen=True, slots=True)
class QualityWithinSlo:
    """Score in four steps, one quarter of the scale each.

    From the top: fast and good enough, by price; fast only, by quality; good only, by latency; neither, by quality.
    Without targets all candidates are fast enough.
    """

    min_quality: float
    name: str = "quality_within_slo"

    @property
    def quality_threshold(self) -> float:
        """Least quality that counts as good enough."""
        return self.min_quality

    def scores(self, views: Sequence[DeploymentView], attempt: Attempt = FIRST_ATTEMPT) -> list[float]:
        """Return the step of each candidate, with its rank inside the step."""
        costs, latencies = Cost().scores(views), Latency().scores(views)
        return [
            self._score(view, attempt, cost, latency)
            for view, cost, latency in zip(views, costs, latencies, strict=True)
        ]

    def cause(self, chosen: DeploymentView, attempt: Attempt) -> Cause:
        """Return the step of the chosen candidate."""
        if not chosen.is_known_prompt:
            return "unknown_prompt"
        if not meets(chosen, attempt):
            return "too_slow"
        return "good_enough" if chosen.quality >= self.min_quality else "not_good_enough"

    def _score(self, view: DeploymentView, attempt: Attempt, cost: float, latency: float) -> float:
        is_good = view.quality >= self.min_quality
        if meets(view, attempt):
            return 0.75 + cost / 4 if is_good else 0.5 + 0.249 * view.quality
        return 0.25 + 0.249 * latency if is_good else 0.249 * view.quality

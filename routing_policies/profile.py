"""Profile: filters, weighted scorers and one picker, run in that order."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from routing_policies.decision import Cause, Decision, DropReason
from routing_policies.filters import Capacity, Filter, Health, InTime, Untried, Warm
from routing_policies.pickers import Best, Picker, Proportional
from routing_policies.policy.selection import Cascade, Select
from routing_policies.policy.values import ScorerName, SelectPolicy
from routing_policies.ranking import Ranking, ScorerWeights
from routing_policies.scorers.affinity import Affinity
from routing_policies.scorers.base import Explaining, Scorer
from routing_policies.scorers.canary import CanaryShare
from routing_policies.scorers.headroom import Headroom
from routing_policies.scorers.latency import Latency
from routing_policies.scorers.nearest import Nearest
from routing_policies.scorers.order import Order
from routing_policies.scorers.pace import OutputSpeed
from routing_policies.scorers.quality_and_cost.cost import Cost
from routing_policies.scorers.quality_and_cost.cost_cap import CostCap
from routing_policies.scorers.quality_and_cost.cost_within_slo import CostWithinSlo
from routing_policies.scorers.quality_and_cost.quality import QualityScore
from routing_policies.scorers.quality_and_cost.quality_within_slo import QualityWithinSlo
from routing_policies.scorers.quality_and_cost.worth_trying import WorthTrying
from routing_policies.scorers.rendezvous import Rendezvous
from routing_policies.scorers.session import Session
from routing_policies.scorers.share import Share
from routing_policies.scorers.zone import Zone
from routing_policies.views import Attempt, DeploymentView


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedScorer:
    """A scorer and its weight relative to the others."""

    scorer: Scorer
    weight: float = 1.0


_AHEAD: Final = (Latency, OutputSpeed, Cost, CostWithinSlo, CostCap, QualityWithinSlo)
_BY_COST: Final = (Cost, CostWithinSlo, CostCap, QualityWithinSlo)
_BY_TARGETS: Final = (CostWithinSlo, QualityWithinSlo)
_BACK: Final = (Latency, Affinity, Session, CostWithinSlo, QualityWithinSlo)
_BY_KEY: Final = (Rendezvous, CanaryShare)
_BY_QUALITY: Final = (QualityScore, CostCap, QualityWithinSlo, WorthTrying)


_NONE_DROPPED: Final[Mapping[str, DropReason]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One way to choose among candidates."""

    name: str
    filters: tuple[Filter, ...]
    scorers: tuple[WeightedScorer, ...]
    picker: Picker

    takes_first: bool = field(init=False)
    """True if the first candidate that passes the filters always wins."""
    reads_forecasts: bool = field(init=False)
    """True if the scorers use forecasts, which cost more than the other parts of a view."""
    reads_affinity: bool = field(init=False)
    """True if the scorers use the deployments' cached prefixes or sessions."""
    reads_key: bool = field(init=False)
    """True if the scorers use the conversation or tenant of a request."""
    reads_cost: bool = field(init=False)
    """True if the scorers use the cost of a request."""
    reads_targets: bool = field(init=False)
    """True if the scorers use latency targets, beyond the filter for late candidates."""
    reads_quality: bool = field(init=False)
    """True if the scorers use the quality of the candidates' answers."""
    scorer_weights: ScorerWeights = field(init=False)
    takes_best: bool = field(init=False)
    """True if the highest total wins, so lower ones need not be exact."""
    explaining: Explaining | None = field(init=False)
    """Scorer with the largest weight, if it can explain its choice."""
    reads_distance: bool = field(init=False)
    """True if the scorers use the measured distance of the candidates' zones."""
    needs_request: bool = field(init=False)
    """True if the choice depends on more of the request than its route."""

    def __post_init__(self) -> None:
        scorers = [weighted.scorer for weighted in self.scorers]
        takes_best = isinstance(self.picker, Best)
        only_order = takes_best and [type(scorer) for scorer in scorers] == [Order]
        reads_forecasts = any(isinstance(scorer, _AHEAD) for scorer in scorers)
        reads_affinity = any(isinstance(scorer, _BACK) for scorer in scorers)
        object.__setattr__(self, "reads_key", any(isinstance(scorer, _BY_KEY) for scorer in scorers))
        object.__setattr__(self, "reads_cost", any(isinstance(scorer, _BY_COST) for scorer in scorers))
        object.__setattr__(self, "reads_targets", any(isinstance(scorer, _BY_TARGETS) for scorer in scorers))
        object.__setattr__(self, "reads_distance", any(isinstance(scorer, Nearest) for scorer in scorers))
        object.__setattr__(self, "reads_quality", any(isinstance(scorer, _BY_QUALITY) for scorer in scorers))
        leading = scorers[0] if scorers else None
        object.__setattr__(self, "explaining", leading if isinstance(leading, Explaining) else None)
        scorer_weights = ScorerWeights([(weighted.scorer, weighted.weight) for weighted in self.scorers])
        object.__setattr__(self, "scorer_weights", scorer_weights)
        object.__setattr__(self, "takes_best", takes_best)
        object.__setattr__(self, "takes_first", only_order)
        object.__setattr__(self, "reads_forecasts", reads_forecasts)
        object.__setattr__(self, "reads_affinity", reads_affinity)
        object.__setattr__(self, "needs_request", reads_forecasts or reads_affinity or self.reads_quality)

    def decide(self, views: Sequence[DeploymentView], attempt: Attempt, rng: random.Random) -> Decision:
        """Return the decision for candidates in the route's order; it depends only on the arguments."""
        dropped: dict[str, DropReason] = {}
        active = []
        for view in views:
            reason = self._drop_reason(view, attempt)
            if reason is None:
                active.append(view)
            else:
                dropped[view.id] = reason
        if not active:
            return Decision(deployment=None, policy=self.name, dropped=dropped)
        return self._choose(active, dropped, attempt, rng)

    def decide_among(self, views: Sequence[DeploymentView], attempt: Attempt, rng: random.Random) -> Decision:
        """Return the decision for candidates that no filter would drop; there is at least one."""
        return self._choose(views, _NONE_DROPPED, attempt, rng)

    def _choose(
        self,
        views: Sequence[DeploymentView],
        dropped: Mapping[str, DropReason],
        attempt: Attempt,
        rng: random.Random,
    ) -> Decision:
        ranking = Ranking(self.scorer_weights, views, attempt)
        chosen = ranking.leader() if self.takes_best else self.picker.pick(ranking.totals, rng)
        cause: Cause = "first" if self.explaining is None else self._cause(chosen, views, attempt)
        return Decision(chosen, self.name, dropped, ranking, cause)

    def _cause(self, chosen: str, views: Sequence[DeploymentView], attempt: Attempt) -> Cause:
        """Return the cause that the scorer with the largest weight gives for the chosen candidate."""
        assert self.explaining is not None, "used only by explain"
        return self.explaining.cause(next(view for view in views if view.id == chosen), attempt)

    def _drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        for one in self.filters:
            reason = one.drop_reason(view, attempt)
            if reason is not None:
                return reason
        return None


def profile_of(select: Select) -> Profile:
    """Return the profile of a route."""
    policy = select.policy
    if policy == "cascade":
        skip_below = (select.cascade or Cascade()).skip_below
        in_order = _weighted((WorthTrying(skip_below), 16.0), (Order(), 1.0))
        return Profile(name=policy, filters=_FREE, scorers=in_order, picker=Best())
    if select.min_quality is not None:
        # One percent of cost outweighs any latency within the targets; latency breaks ties of cost.
        by_quality = _weighted((QualityWithinSlo(select.min_quality), 1024.0), (Latency(), 1.0), (Affinity(), 0.1))
        return Profile(name=policy, filters=_FIT, scorers=by_quality, picker=Best())
    if select.max_request_cost is not None:
        by_cost = _weighted((CostCap(select.max_request_cost), 256.0), (Latency(), 1.0), (Order(), 0.1))
        return Profile(name=policy, filters=_FIT, scorers=by_cost, picker=Best())
    if select.canary is not None:
        by_share = _weighted((CanaryShare(select.canary.id, select.canary.ratio), 16.0), (Order(), 1.0))
        return Profile(name=policy, filters=_FREE, scorers=by_share, picker=Best())
    return profile_for(policy, select.weights)


def profile_for(policy: SelectPolicy, weights: Mapping[ScorerName, float] | None = None) -> Profile:
    """Return the profile of a `select.policy` by its name alone.

    Args:
        policy: The policy's name.
        weights: Weights of the scorers, for `scored`.

    Raises:
        KeyError: The policy needs a setting of its own.
    """
    if policy == "scored":
        scorers = tuple(
            WeightedScorer(scorer=_SCORERS[name], weight=weight) for name, weight in (weights or {}).items()
        )
        return Profile(name=policy, filters=_FIT, scorers=scorers, picker=Best())
    return _PROFILES[policy]


_FIT: Final[tuple[Filter, ...]] = (Health(), Untried(), InTime(), Warm())
"""Filters of candidates that can serve now or after waiting, for profiles in which that wait counts as latency."""
_FREE: Final[tuple[Filter, ...]] = (*_FIT, Capacity())

_SCORERS: Final[dict[ScorerName, Scorer]] = {
    "affinity": Affinity(),
    "cost": Cost(),
    "headroom": Headroom(),
    "latency": Latency(),
    "order": Order(),
    "pace": OutputSpeed(),
    "quality": QualityScore(),
    "session": Session(),
    "zone": Zone(),
}


def _weighted(*scorers: tuple[Scorer, float]) -> tuple[WeightedScorer, ...]:
    return tuple(WeightedScorer(scorer=scorer, weight=weight) for scorer, weight in scorers)


_PROFILES: Final[dict[SelectPolicy, Profile]] = {
    "first_available": Profile(name="first_available", filters=_FREE, scorers=_weighted((Order(), 1.0)), picker=Best()),
    "weighted": Profile(name="weighted", filters=_FREE, scorers=_weighted((Share(), 1.0)), picker=Proportional()),
    "least_in_flight": Profile(
        name="least_in_flight", filters=_FREE, scorers=_weighted((Headroom(), 1.0)), picker=Best()
    ),
    # A nearer zone outweighs any share of free permits.
    "nearest_first": Profile(
        name="nearest_first", filters=_FREE, scorers=_weighted((Nearest(), 1024.0), (Headroom(), 1.0)), picker=Best()
    ),
    "sticky": Profile(name="sticky", filters=_FREE, scorers=_weighted((Rendezvous(), 1.0)), picker=Best()),
    # The forecast decides; the other scorers break near ties.
    "latency_first": Profile(
        name="latency_first",
        filters=_FIT,
        scorers=_weighted(
            (Latency(), 16.0),
            (OutputSpeed(), 4.0),
            (Affinity(), 1.0),
            (Zone(), 1.0),
            (Session(), 0.5),
            (Headroom(), 0.5),
        ),
        picker=Best(),
    ),
    # One percent of cost outweighs any latency within the targets; latency breaks ties of cost.
    "least_cost_within_slo": Profile(
        name="least_cost_within_slo",
        filters=_FIT,
        scorers=_weighted((CostWithinSlo(), 256.0), (Latency(), 1.0), (Affinity(), 0.1), (Session(), 0.05)),
        picker=Best(),
    ),
}

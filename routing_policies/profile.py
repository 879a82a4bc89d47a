"""Filters, weighted scorers and one picker, run in that order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from routing_policies.decision import Decision, DropReason
from routing_policies.document import SelectPolicy
from routing_policies.filters.base import Filter
from routing_policies.filters.capacity import Capacity
from routing_policies.filters.health import Health
from routing_policies.filters.untried import Untried
from routing_policies.pickers.base import Picker
from routing_policies.pickers.best import Best
from routing_policies.pickers.proportional import Proportional
from routing_policies.scorers.base import Scorer
from routing_policies.scorers.headroom import Headroom
from routing_policies.scorers.order import Order
from routing_policies.scorers.share import Share
from routing_policies.views import Attempt, DeploymentView


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedScorer:
    """A scorer and how much it counts, relative to the others."""

    scorer: Scorer
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One way to choose."""

    name: str
    filters: tuple[Filter, ...]
    scorers: tuple[WeightedScorer, ...]
    picker: Picker

    @property
    def takes_first(self) -> bool:
        """Whether the first candidate that no filter drops always wins, whatever the others are like."""
        return isinstance(self.picker, Best) and [type(weighted.scorer) for weighted in self.scorers] == [Order]

    def decide(self, views: Sequence[DeploymentView], attempt: Attempt, rng: random.Random) -> Decision:
        """The decision for candidates in the route's order; the same state and `rng` give the same decision."""
        dropped: dict[str, DropReason] = {}
        for view in views:
            reason = self._drop_reason(view, attempt)
            if reason is not None:
                dropped[view.id] = reason
        kept = [view for view in views if view.id not in dropped]
        scores = self._scores(kept)
        totals = {candidate: self._total(scores[candidate]) for candidate in scores}
        chosen = self.picker.pick(totals, rng) if totals else None
        return Decision(
            deployment=chosen,
            policy=self.name,
            reason=_reason(chosen, len(kept), dropped),
            dropped=dropped,
            scores=scores,
            totals=totals,
        )

    def _drop_reason(self, view: DeploymentView, attempt: Attempt) -> DropReason | None:
        return next((reason for f in self.filters if (reason := f.drop_reason(view, attempt)) is not None), None)

    def _scores(self, views: Sequence[DeploymentView]) -> dict[str, dict[str, float]]:
        scores: dict[str, dict[str, float]] = {view.id: {} for view in views}
        for weighted in self.scorers if views else ():
            for view, score in zip(views, weighted.scorer.scores(views), strict=True):
                assert 0.0 <= score <= 1.0, f"{weighted.scorer.name} gave {view.id} {score}"
                scores[view.id][weighted.scorer.name] = score
        return scores

    def _total(self, scores: dict[str, float]) -> float:
        weights = sum(weighted.weight for weighted in self.scorers)
        return sum(weighted.weight * scores[weighted.scorer.name] for weighted in self.scorers) / weights


def profile_for(policy: SelectPolicy) -> Profile:
    """The profile of a route's `select.policy`. Raises KeyError for one that loading refuses."""
    scorer, picker = _RANKING[policy]
    return Profile(
        name=policy,
        filters=(Health(), Untried(), Capacity()),
        scorers=(WeightedScorer(scorer=scorer),),
        picker=picker,
    )


_RANKING: dict[SelectPolicy, tuple[Scorer, Picker]] = {
    "first_available": (Order(), Best()),
    "weighted": (Share(), Proportional()),
    "least_in_flight": (Headroom(), Best()),
}


def _reason(chosen: str | None, num_kept: int, dropped: dict[str, DropReason]) -> str:
    out = ", ".join(f"{candidate} {reason}" for candidate, reason in dropped.items())
    if chosen is None:
        picked = "nobody left" if out else "no candidates"
    else:
        picked = f"chosen from {num_kept}"
    return f"{picked}; {out}" if out else picked

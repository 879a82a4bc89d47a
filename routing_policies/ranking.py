"""Ranking: candidates by the weighted mean of their scores, computed only as far as the choice requires.

The remaining scores are computed when the decision is inspected, which is rare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add, mul
from typing import Final

import msgspec

from routing_policies.scorers.base import ComparesQuality, Scorer
from routing_policies.views import Attempt, DeploymentView

_CRUMB: Final = 1e-6
"""Lead below which a difference may be rounding."""


class ScorerWeights:
    """Scorers of a profile and their weights; `by_weight` is the order in which a choice uses them."""

    __slots__ = ("by_weight", "names", "scorers", "weights", "whole")

    def __init__(self, scorers: Sequence[tuple[Scorer, float]]) -> None:
        self.scorers = tuple(scorer for scorer, _ in scorers)
        self.names = tuple(scorer.name for scorer in self.scorers)
        self.weights = tuple(weight for _, weight in scorers)
        self.whole = sum(self.weights)
        """Sum of all weights."""
        places = sorted(range(len(self.weights)), key=lambda place: -self.weights[place])
        lighter = [sum(self.weights[later] for later in places[rank + 1 :]) for rank in range(len(places))]
        self.by_weight = tuple(
            (place, self.scorers[place], self.weights[place], left) for place, left in zip(places, lighter, strict=True)
        )
        """Index, scorer, weight and the sum of the remaining weights, heaviest first."""


class Ranking(msgspec.Struct, eq=False):
    """Candidates in the route's order, for one attempt."""

    scorer_weights: ScorerWeights
    views: Sequence[DeploymentView]
    attempt: Attempt
    _columns: dict[int, list[float]] = {}
    """Scores of the candidates by the scorer's index, for scorers that have run."""
    _totals: dict[str, float] | None = None

    def leader(self) -> str:
        """Return the candidate with the highest total, of equal ones the first.

        Scorers run by decreasing weight, and only while the remaining ones could still change the leader.
        """
        views, attempt, columns = self.views, self.attempt, self._columns
        if len(views) == 1:
            return views[0].id
        sums: list[float] = []
        for place, scorer, weight, left in self.scorer_weights.by_weight:
            column = columns[place] = scorer.scores(views, attempt)
            parts = [weight * score for score in column]
            sums = list(map(add, sums, parts)) if sums else parts
            *_, second, first = sorted(sums)
            if first - second > left + _CRUMB:
                return views[sums.index(first)].id
        totals = self.totals
        return max(totals, key=totals.__getitem__)

    @property
    def scores(self) -> Mapping[str, Mapping[str, float]]:
        """Scores by candidate and scorer."""
        names = self.scorer_weights.names
        rows = zip(*self._all_columns(), strict=True)
        return {view.id: dict(zip(names, row, strict=True)) for view, row in zip(self.views, rows, strict=True)}

    @property
    def totals(self) -> Mapping[str, float]:
        """Weighted mean of the scores by candidate."""
        if self._totals is None:
            weights, whole = self.scorer_weights.weights, self.scorer_weights.whole
            found = self._totals = {}
            for view, row in zip(self.views, zip(*self._all_columns(), strict=True), strict=True):
                total = sum(map(mul, weights, row)) / whole
                assert 0.0 <= total <= 1.0001, f"a score of {view.id} is out of range: {row}"
                found[view.id] = total if total < 1.0 else 1.0  # rounding may exceed 1 slightly
        return self._totals

    @property
    def qualities(self) -> Mapping[str, float]:
        """Quality by candidate; empty where no scorer compares it."""
        return {view.id: view.quality for view in self.views} if self._comparing() else {}

    @property
    def quality_threshold(self) -> float | None:
        """Least quality that a scorer takes; None without a threshold."""
        return next((scorer.quality_threshold for scorer in self._comparing()), None)

    def _comparing(self) -> list[ComparesQuality]:
        return [scorer for scorer in self.scorer_weights.scorers if isinstance(scorer, ComparesQuality)]

    def __eq__(self, other: object) -> bool:
        """Compare by scores and totals, not by how far they are computed."""
        if not isinstance(other, Ranking):
            return NotImplemented
        return self.scores == other.scores and self.totals == other.totals

    def _all_columns(self) -> list[list[float]]:
        """Return the scores of each scorer, in the order of the candidates."""
        columns = self._columns
        for place, scorer in enumerate(self.scorer_weights.scorers):
            if place not in columns:
                columns[place] = scorer.scores(self.views, self.attempt)
        return [columns[place] for place in range(len(columns))]

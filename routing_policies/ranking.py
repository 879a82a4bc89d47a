"""Ranking: candidates by the weighted mean of their scores, worked out as far as the choice needs it; the rest when
somebody looks at the decision, and of most nobody does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add, mul
from typing import Final

import msgspec

from routing_policies.scorers.base import Scorer
from routing_policies.views import Attempt, DeploymentView

_CRUMB: Final = 1e-6
"""A lead by less may be rounding."""


class Weighing:
    """The scorers of a profile and what each counts; `by_weight` tells in which order a choice asks them."""

    __slots__ = ("by_weight", "names", "scorers", "weights", "whole")

    def __init__(self, scorers: Sequence[tuple[Scorer, float]]) -> None:
        self.scorers = tuple(scorer for scorer, _ in scorers)
        self.names = tuple(scorer.name for scorer in self.scorers)
        self.weights = tuple(weight for _, weight in scorers)
        self.whole = sum(self.weights)
        """Of all scorers together."""
        places = sorted(range(len(self.weights)), key=lambda place: -self.weights[place])
        lighter = [sum(self.weights[later] for later in places[rank + 1 :]) for rank in range(len(places))]
        self.by_weight = tuple(
            (place, self.scorers[place], self.weights[place], left) for place, left in zip(places, lighter, strict=True)
        )
        """Of each scorer its place, itself, its weight and what those after it weigh together; the heaviest first."""


class Ranking(msgspec.Struct, eq=False):
    """Candidates in the route's order, for one attempt."""

    weighing: Weighing
    views: Sequence[DeploymentView]
    attempt: Attempt
    _columns: dict[int, list[float]] = {}
    """By a scorer's place what it said of each candidate, of those that were asked."""
    _totals: dict[str, float] | None = None

    def leader(self) -> str:
        """Who has the highest total, of equal ones the first. The scorers that count most are asked first, and the
        others only while they could still bring another to the front."""
        views, attempt, columns = self.views, self.attempt, self._columns
        if len(views) == 1:
            return views[0].id
        sums: list[float] = []
        for place, scorer, weight, left in self.weighing.by_weight:
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
        """Of each candidate its score from each scorer."""
        names = self.weighing.names
        rows = zip(*self._all_columns(), strict=True)
        return {view.id: dict(zip(names, row, strict=True)) for view, row in zip(self.views, rows, strict=True)}

    @property
    def totals(self) -> Mapping[str, float]:
        """Of each candidate the weighted mean of its scores."""
        if self._totals is None:
            weights, whole = self.weighing.weights, self.weighing.whole
            found = self._totals = {}
            for view, row in zip(self.views, zip(*self._all_columns(), strict=True), strict=True):
                total = sum(map(mul, weights, row)) / whole
                assert 0.0 <= total <= 1.0001, f"a score of {view.id} is out of range: {row}"
                found[view.id] = total if total < 1.0 else 1.0  # rounding may leave a crumb above a whole
        return self._totals

    def __eq__(self, other: object) -> bool:
        """What they tell counts, not who has looked."""
        if not isinstance(other, Ranking):
            return NotImplemented
        return self.scores == other.scores and self.totals == other.totals

    def _all_columns(self) -> list[list[float]]:
        """Of each scorer, its scores in the order of the candidates."""
        columns = self._columns
        for place, scorer in enumerate(self.weighing.scorers):
            if place not in columns:
                columns[place] = scorer.scores(self.views, self.attempt)
        return [columns[place] for place in range(len(columns))]

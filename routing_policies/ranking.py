"""Ranking: candidates by the weighted mean of their scores, worked out as far as the choice needs it; the rest when
somebody looks at the decision, and of most nobody does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import add, mul
from typing import Final

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


class Ranking(Mapping[str, Mapping[str, float]]):
    """Candidates in the route's order, for one attempt: candidate → scorer → score, when somebody looks."""

    __slots__ = ("_attempt", "_columns", "_totals", "_views", "_weighing")

    def __init__(self, weighing: Weighing, views: Sequence[DeploymentView], attempt: Attempt) -> None:
        self._weighing = weighing
        self._views = views
        self._attempt = attempt
        self._columns: list[list[float] | None] = [None] * len(weighing.scorers)
        self._totals: dict[str, float] | None = None

    def leader(self) -> str:
        """Who has the highest total, of equal ones the first. The scorers that count most are asked first, and the
        others only while they could still bring another to the front."""
        views, attempt, columns = self._views, self._attempt, self._columns
        if len(views) == 1:
            return views[0].id
        sums: list[float] = []
        for place, scorer, weight, left in self._weighing.by_weight:
            column = columns[place] = scorer.scores(views, attempt)
            parts = [weight * score for score in column]
            sums = list(map(add, sums, parts)) if sums else parts
            *_, second, first = sorted(sums)
            if first - second > left + _CRUMB:
                return views[sums.index(first)].id
        totals = self.totals
        return max(totals, key=totals.__getitem__)

    @property
    def candidates(self) -> list[str]:
        """Their ids."""
        return [view.id for view in self._views]

    @property
    def columns(self) -> list[list[float]]:
        """Of each scorer, its scores in the order of the candidates."""
        columns = self._columns
        for place, scorer in enumerate(self._weighing.scorers):
            if columns[place] is None:
                columns[place] = scorer.scores(self._views, self._attempt)
        return [column for column in columns if column is not None]

    @property
    def totals(self) -> dict[str, float]:
        """Of each candidate the weighted mean of its scores."""
        if self._totals is None:
            weights, whole = self._weighing.weights, self._weighing.whole
            found = self._totals = {}
            for candidate, row in zip(self.candidates, zip(*self.columns, strict=True), strict=True):
                total = sum(map(mul, weights, row)) / whole
                assert 0.0 <= total <= 1.0001, f"a score of {candidate} is out of range: {row}"
                found[candidate] = total if total < 1.0 else 1.0  # rounding may leave a crumb above a whole
        return self._totals

    def __getitem__(self, candidate: str) -> Mapping[str, float]:
        try:
            row = self.candidates.index(candidate)
        except ValueError:
            raise KeyError(candidate) from None
        return {name: column[row] for name, column in zip(self._weighing.names, self.columns, strict=True)}

    def __iter__(self) -> Iterator[str]:
        return iter(self.candidates)

    def __len__(self) -> int:
        return len(self._views)

    def __repr__(self) -> str:
        return repr(dict(self))


class Totals(Mapping[str, float]):
    """Candidate → weighted mean of its scores, when somebody looks."""

    __slots__ = ("_ranking",)

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking

    def __getitem__(self, candidate: str) -> float:
        return self._ranking.totals[candidate]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ranking)

    def __len__(self) -> int:
        return len(self._ranking)

    def __repr__(self) -> str:
        return repr(dict(self))

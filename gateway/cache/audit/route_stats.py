"""RouteStats: what is known of similar answers for one tenant on one route, and how much is dared with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from gateway.cache.audit.budget_usage import BudgetUsage
from gateway.cache.audit.error_budget import CLOSED, TIGHTENINGS, next_level, tightening_of
from gateway.cache.audit.evidence import AuditEvidence, Sample
from gateway.cache.audit.lookup_order import LookupOrder
from gateway.cache.audit.similarities import Similarities
from gateway.cache.similarity.decision import EntryAudits
from gateway.util.bounded_dict import Recent

MAX_BOOKS: Final = 4096
_DOUBT_SMOOTHING: Final = 0.02
_NOT_SERVED: Final = 2.0
"""A chance that nothing has."""


class MatchPredictor(Protocol):
    """Tells how likely a kept answer is to be right for a similar question. Pure."""

    def chance_right(
        self, asked: str, kept: str, *, similarity: float, runner_up: float | None, track: EntryAudits | None
    ) -> float:
        """Calibrated."""
        ...

    def floor(self, max_error_ratio: float, *, tightening: float = 0.0) -> float:
        """The least chance with which the bound is kept; `tightening` 1 serves nothing."""
        ...


class TenantRoute(NamedTuple):
    """Answers, errors and promises are counted apart for each."""

    tenant: str
    route: str


class RouteStats:
    """Belongs to one event loop; time is passed in."""

    __slots__ = (
        *("_floors", "_usual_doubt", "evidence", "judge", "level"),
        *("num_news", "order", "shipped", "similarities", "since", "spending"),
    )

    def __init__(self, judge: MatchPredictor) -> None:
        """`judge` is the one that is shipped."""
        self.shipped = judge
        self.judge = judge
        self.num_news = 0
        """Samples that the judge has not learnt from."""
        self.evidence = AuditEvidence()
        self.spending = BudgetUsage()
        self.level = 0
        self.since = 0.0
        """When the level became what it is, seconds since 1970; 0: it never was another."""
        self.order = LookupOrder()
        self.similarities = Similarities()
        self._usual_doubt = 0.0
        self._floors: dict[tuple[float, int], float] = {}

    def floor(self, max_error_ratio: float, level: int | None = None) -> float:
        """The least chance that is served at a level, by default the one in force; above 1 when nothing is."""
        level = self.level if level is None else level
        found = self._floors.get((max_error_ratio, level))
        if found is None:
            tightening = tightening_of(level)
            found = _NOT_SERVED
            if tightening is not None and max_error_ratio > 0.0:
                found = self.judge.floor(max_error_ratio, tightening=tightening)
            self._floors[max_error_ratio, level] = found
        return found

    def note_request(self, now: float) -> None:
        """One of those whose wrong answers are bounded."""
        self.evidence.note_request(now)
        self.spending.note_request()

    def note_hit(self, now: float, asked: bytes, kept: bytes, chance: float) -> None:
        """The answer of `kept` is given to `asked`."""
        self.evidence.note_hit(now)
        self.spending.note_served(asked, kept, chance)

    def floor_for(self, asked: bytes, kept: bytes, max_error_ratio: float) -> float:
        """The same for one question and one answer: higher as the promise is used up, but for what was given before."""
        floor = self.floor(max_error_ratio)
        return floor if self.spending.is_given(asked, kept) else self.spending.raised(floor, max_error_ratio)

    def lowest(self, max_error_ratio: float) -> float:
        """The least chance that is worth comparing: what the next lower level would serve."""
        return self.floor(max_error_ratio, max(0, self.level - 1))

    def usual_doubt(self, doubt: float) -> float:
        """The mean of what served answers were doubted, this one included."""
        known = self._usual_doubt or doubt
        self._usual_doubt = known + _DOUBT_SMOOTHING * (doubt - known)
        return self._usual_doubt

    def step(self, max_error_ratio: float) -> bool:
        """Look at the evidence; whether the level has changed."""
        here = self.evidence.above(self.floor(max_error_ratio))
        looser = self.evidence.above(self.lowest(max_error_ratio)) if self.level else None
        level = next_level(self.level, here, looser, max_error_ratio)
        has_changed = level != self.level
        self.level = level
        return has_changed

    @property
    def is_recalibrated(self) -> bool:
        """Whether chances are other than those of the shipped judge."""
        return self.judge is not self.shipped

    def recalibrated(self, judge: MatchPredictor) -> None:
        """From now on chances are this judge's."""
        self.judge = judge
        self.num_news = 0
        self._floors.clear()

    def add(self, sample: Sample) -> None:
        """An answer was compared."""
        self.evidence.add(sample)
        self.num_news += 1


class RouteStatsTable:
    """The books of a process, the longest unused thrown out first."""

    __slots__ = ("_books", "_judge")

    def __init__(self, judge: MatchPredictor) -> None:
        """`judge` is the one that is shipped."""
        self._judge = judge
        self._books: Recent[TenantRoute, RouteStats] = Recent(MAX_BOOKS)

    def of(self, whose: TenantRoute) -> RouteStats:
        """Its book, new and empty if there was none."""
        book = self._books.get(whose)
        if book is None:
            book = self._books[whose] = RouteStats(self._judge)
        else:
            self._books.move_to_end(whose)
        return book

    def __iter__(self) -> Iterator[tuple[TenantRoute, RouteStats]]:
        return iter(tuple(self._books.items()))


assert len(TIGHTENINGS) == CLOSED

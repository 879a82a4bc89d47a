"""RouteStats: statistics of semantic hits of one tenant on one route, and their threshold."""

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

MAX_ROUTE_STATS: Final = 4096
_DOUBT_SMOOTHING: Final = 0.02
_NOT_SERVED: Final = 2.0
"""A threshold above every probability."""


class MatchPredictor(Protocol):
    """Predicts whether a cached response is right for a similar question. Pure."""

    def match_probability(
        self, prompt: str, cached: str, *, similarity: float, runner_up: float | None, track: EntryAudits | None
    ) -> float:
        """Return the calibrated match probability."""
        ...

    def threshold(self, max_error_ratio: float, *, tightening: float = 0.0) -> float:
        """Return the least match probability that keeps the bound; `tightening` 1 serves nothing."""
        ...


class TenantRoute(NamedTuple):
    """One tenant on one route: hits, errors and budgets are counted for each."""

    tenant: str
    route: str


class RouteStats:
    """Statistics of one tenant's route. Belongs to one event loop; time is passed in."""

    __slots__ = (
        *("_thresholds", "_usual_doubt", "evidence", "predictor", "level"),
        *("num_news", "order", "shipped", "similarities", "since", "usage"),
    )

    def __init__(self, predictor: MatchPredictor) -> None:
        """Start without evidence; `predictor` is the shipped model."""
        self.shipped = predictor
        self.predictor = predictor
        self.num_news = 0
        """Samples that the model has not learnt from."""
        self.evidence = AuditEvidence()
        self.usage = BudgetUsage()
        self.level = 0
        self.since = 0.0
        """Time of the last change of the level, in seconds since 1970; 0 without one."""
        self.order = LookupOrder()
        self.similarities = Similarities()
        self._usual_doubt = 0.0
        self._thresholds: dict[tuple[float, int], float] = {}

    def threshold(self, max_error_ratio: float, level: int | None = None) -> float:
        """Return the threshold at a level, by default the one in force; above 1 when nothing is served."""
        level = self.level if level is None else level
        found = self._thresholds.get((max_error_ratio, level))
        if found is None:
            tightening = tightening_of(level)
            found = _NOT_SERVED
            if tightening is not None and max_error_ratio > 0.0:
                found = self.predictor.threshold(max_error_ratio, tightening=tightening)
            self._thresholds[max_error_ratio, level] = found
        return found

    def note_request(self, now: float) -> None:
        """Count a request for the error budget."""
        self.evidence.note_request(now)
        self.usage.note_request()

    def note_hit(self, now: float, prompt: bytes, cached: bytes, match_probability: float) -> None:
        """Count the hit of question `prompt` on entry `cached`."""
        self.evidence.note_hit(now)
        self.usage.note_served(prompt, cached, match_probability)

    def threshold_for(self, prompt: bytes, cached: bytes, max_error_ratio: float) -> float:
        """Return the threshold for one pair: higher as the error budget is used, except for pairs served before."""
        threshold = self.threshold(max_error_ratio)
        return threshold if self.usage.is_given(prompt, cached) else self.usage.raised(threshold, max_error_ratio)

    def lowest(self, max_error_ratio: float) -> float:
        """Return the least match probability that is worth comparing: the threshold of the next lower level."""
        return self.threshold(max_error_ratio, max(0, self.level - 1))

    def usual_doubt(self, doubt: float) -> float:
        """Return the mean doubt about hits, this one included."""
        known = self._usual_doubt or doubt
        self._usual_doubt = known + _DOUBT_SMOOTHING * (doubt - known)
        return self._usual_doubt

    def step(self, max_error_ratio: float) -> bool:
        """Adjust the level to the evidence; return whether it has changed."""
        here = self.evidence.above(self.threshold(max_error_ratio))
        looser = self.evidence.above(self.lowest(max_error_ratio)) if self.level else None
        level = next_level(self.level, here, looser, max_error_ratio)
        has_changed = level != self.level
        self.level = level
        return has_changed

    @property
    def is_recalibrated(self) -> bool:
        """Return whether the model differs from the shipped one."""
        return self.predictor is not self.shipped

    def recalibrated(self, predictor: MatchPredictor) -> None:
        """Use another model from now on."""
        self.predictor = predictor
        self.num_news = 0
        self._thresholds.clear()

    def add(self, sample: Sample) -> None:
        """Add an audited response."""
        self.evidence.add(sample)
        self.num_news += 1


class RouteStatsTable:
    """The statistics of a process; the longest unused are dropped first."""

    __slots__ = ("_predictor", "_route_stats")

    def __init__(self, predictor: MatchPredictor) -> None:
        """Start without evidence; `predictor` is the shipped model."""
        self._predictor = predictor
        self._route_stats: Recent[TenantRoute, RouteStats] = Recent(MAX_ROUTE_STATS)

    def of(self, whose: TenantRoute) -> RouteStats:
        """Return the statistics of a tenant's route, new ones if there are none."""
        stats = self._route_stats.get(whose)
        if stats is None:
            stats = self._route_stats[whose] = RouteStats(self._predictor)
        else:
            self._route_stats.move_to_end(whose)
        return stats

    def __iter__(self) -> Iterator[tuple[TenantRoute, RouteStats]]:
        return iter(tuple(self._route_stats.items()))


assert len(TIGHTENINGS) == CLOSED

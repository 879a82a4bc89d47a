"""RouteStats: statistics of semantic hits of one tenant on one route, and their threshold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from gateway.cache.audit.budget_usage import BudgetUsage
from gateway.cache.audit.doubt_factor import DoubtFactor
from gateway.cache.audit.error_budget import CLOSED, TIGHTENINGS, next_level, tightening_of
from gateway.cache.audit.evidence import AuditEvidence, Sample
from gateway.cache.audit.lookup_order import LookupOrder
from gateway.cache.audit.lookup_times import LookupTimes
from gateway.cache.audit.similarities import Similarities
from gateway.cache.similarity.decision import EntryAudits
from gateway.util.bounded_dict import Recent

MAX_ROUTE_STATS: Final = 4096
_MAX_BOUNDS: Final = 64
_DOUBT_SMOOTHING: Final = 0.02
_NOT_SERVED: Final = 2.0
"""A threshold above every probability."""
LOOSENED: Final = 2.0
"""Multiple of the bound whose shipped threshold is the lowest that traffic alone reaches; audits may prove more."""


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
        *("_shipped_thresholds", "_usual_doubt", "evidence", "predictor", "level", "doubt"),
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
        self.doubt = DoubtFactor()
        self.level = 0
        self.since = 0.0
        """Time of the last change of the level, in seconds since 1970; 0 without one."""
        self.order = LookupOrder()
        self.similarities = Similarities()
        self._usual_doubt = 0.0
        self._shipped_thresholds: dict[float, float] = {}

    def threshold(self, max_error_ratio: float, level: int | None = None) -> float:
        """Return the threshold at a level, by default the one in force; above 1 when nothing is served."""
        tightening = tightening_of(self.level if level is None else level)
        if tightening is None or max_error_ratio <= 0.0:
            return _NOT_SERVED
        threshold = self._open_threshold(max_error_ratio)
        return threshold if threshold >= 1.0 else threshold + (1.0 - threshold) * tightening

    def _open_threshold(self, max_error_ratio: float) -> float:
        """Return the threshold that uses the budget: the shipped one at first, then the recent lookups' own."""
        shipped = self._shipped_threshold(max_error_ratio)
        found = self.usage.threshold(max_error_ratio, self.doubt.factor)
        if found is None or shipped >= 1.0:
            return shipped
        return max(found, self._loosest(max_error_ratio))

    def _loosest(self, max_error_ratio: float) -> float:
        """Return the lowest threshold that what audits have shown allows."""
        return self._shipped_threshold(min(1.0, max_error_ratio * LOOSENED / self.doubt.factor))

    def _shipped_threshold(self, max_error_ratio: float) -> float:
        found = self._shipped_thresholds.get(max_error_ratio)
        if found is None:
            if len(self._shipped_thresholds) >= _MAX_BOUNDS:
                self._shipped_thresholds.clear()
            found = self._shipped_thresholds[max_error_ratio] = self.predictor.threshold(max_error_ratio)
        return found

    def note_request(self, now: float) -> None:
        """Count a request for the error budget."""
        self.evidence.note_request(now)
        self.usage.note_request()

    def note_lookup(self, prompt: bytes, cached: bytes, match_probability: float, shipped_probability: float) -> None:
        """Count a lookup of question `prompt` that found entry `cached`, whether it is served or not."""
        is_given = self.usage.is_given(prompt, cached)
        self.usage.note_lookup(match_probability, 1.0 - shipped_probability, is_given=is_given)

    def note_hit(self, now: float, prompt: bytes, cached: bytes, shipped_probability: float) -> None:
        """Count the hit of question `prompt` on entry `cached`."""
        self.evidence.note_hit(now)
        self.usage.note_served(prompt, cached, 1.0 - shipped_probability)

    def threshold_for(self, prompt: bytes, cached: bytes, max_error_ratio: float) -> float:
        """Return the threshold for one pair: higher as the error budget is used, except for pairs served before."""
        threshold = self.threshold(max_error_ratio)
        if self.usage.is_given(prompt, cached):
            return threshold
        return self.usage.raised(threshold, max_error_ratio, self.doubt.factor)

    def lowest(self, max_error_ratio: float) -> float:
        """Return the least match probability that is worth comparing: what a looser threshold would serve."""
        return self.threshold(max_error_ratio, self.level - 1) if self.level else self._loosest(max_error_ratio)

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
        self._shipped_thresholds.clear()

    def add(self, sample: Sample) -> None:
        """Add an audited response."""
        num_changes = self.doubt.num_changes
        self.doubt.add(sample, self.evidence.add(sample))
        if self.doubt.num_changes > num_changes:
            self.usage.restart()
        self.num_news += 1


class RouteStatsTable:
    """The statistics of a process; the longest unused are dropped first."""

    __slots__ = ("_predictor", "_route_stats", "times")

    def __init__(self, predictor: MatchPredictor) -> None:
        """Start without evidence; `predictor` is the shipped model."""
        self._predictor = predictor
        self.times = LookupTimes()
        """Times of lookups and responses, of all tenants together."""
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

"""CanaryCounts: this process' counts for a canary trial and for the revision beside it."""

from __future__ import annotations

import msgspec

from gateway.policies.canary import CanaryTrial
from gateway.telemetry.records.record import CacheResult, RequestRecord
from gateway.timeline import Outcome, Stage
from routing_policies.trial import EventCount, Side, new_side

MAX_SAMPLES = 200
"""Number of TTFT samples of the old revision, from which its 95th percentile is taken."""
MIN_SAMPLES = 50
_MAX_ANSWERS = 20_000
"""Number of answers remembered for a later verdict."""

_FAILED = frozenset({Outcome.FAILED, Outcome.UPSTREAM_FAILED, Outcome.UPSTREAM_TIMEOUT})
_ANSWERED = frozenset({Outcome.COMPLETED, Outcome.CACHED})
_OVER_LIMIT = 429


class Published(msgspec.Struct):
    """Counts of one process, as other replicas read them."""

    old: Side
    new: Side
    samples: list[float]
    """TTFT samples of the old revision, in milliseconds."""


class CanaryCounts:
    """Counts of every request that begins while a trial runs; one of neither side costs three comparisons."""

    def __init__(self, canary: CanaryTrial, *, began_at: float) -> None:
        """Count requests from the monotonic instant `began_at` on: those before may have met another fault."""
        self._began_at = began_at
        self.canary = canary
        self.published = Published(new_side(), new_side(), [])
        self._base: str = canary.base["revision"]
        self._answers: dict[str, tuple[str, Side]] = {}
        self.has_changed = False

    def note(self, record: RequestRecord) -> None:
        """Count a finished request."""
        side = self._side(record)
        outcome = record.outcome
        is_rejected = outcome is Outcome.REJECTED
        if side is None or outcome is Outcome.CANCELLED or (is_rejected and not _depends_on_policy(record)):
            return
        self.has_changed = True
        _count(side["rejected"], is_rejected)
        if is_rejected:
            return
        _count(side["shed"], outcome is Outcome.SHED)
        _count(side["error"], outcome in _FAILED)
        if outcome in _ANSWERED:
            side["wrong"].count += 1
            self._remember(record, side)
            self._note_speed(record, side)

    def note_wrong(self, request_id: str, tenant: str) -> bool:
        """Count an answer that feedback marked as wrong; return False when it is none of this trial's."""
        found = self._answers.get(request_id)
        if found is None or found[0] != tenant:
            return False
        del self._answers[request_id]  # an answer counts as wrong once
        found[1]["wrong"].events += 1
        self.has_changed = True
        return True

    def note_audit(self, request_id: str, tenant: str, *, is_wrong: bool) -> None:
        """Count an audit, if the answer is one of this trial's."""
        found = self._answers.get(request_id)
        if found is not None and found[0] == tenant:
            _count(found[1]["audit"], is_wrong)
            self.has_changed = True

    def _side(self, record: RequestRecord) -> Side | None:
        if record.timeline.started_at < self._began_at:
            return None
        tenants = self.canary.tenants
        return None if tenants is not None and record.tenant not in tenants else self._side_of(record.policy)

    def _side_of(self, revision: str) -> Side | None:
        if revision == self.canary.revision:
            return self.published.new
        return self.published.old if revision == self._base else None

    def _remember(self, record: RequestRecord, side: Side) -> None:
        if len(self._answers) >= _MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]
        self._answers[record.request_id] = (record.tenant, side)

    def _note_speed(self, record: RequestRecord, side: Side) -> None:
        """Count the TTFT of an answer where it is known, except for cache hits, which do not depend on routing."""
        timeline = record.timeline
        if record.cache in (CacheResult.HIT_EXACT, CacheResult.HIT_SEMANTIC):
            return
        if timeline.first_token_at is None:  # a plain answer whose deployment does not report its first token
            return
        ttft_ms = (timeline.first_token_at - timeline.started_at) * 1000
        if self.canary.slow_above_ms is not None:
            _count(side["slow"], ttft_ms > self.canary.slow_above_ms)
        elif side is self.published.old and len(self.published.samples) < MAX_SAMPLES:
            self.published.samples.append(ttft_ms)


def add_up(all_of_them: list[Published]) -> Published:
    """Return the sum of the counts of several processes."""
    total = Published(new_side(), new_side(), [])
    for one in all_of_them:
        total.samples += one.samples
        for mine, theirs in ((total.old, one.old), (total.new, one.new)):
            for measure, tally in theirs.items():
                mine[measure].events += tally.events
                mine[measure].count += tally.count
    return total


def slow_above_ms(samples: list[float]) -> float | None:
    """Return the 95th percentile of the samples, or None while there are too few."""
    return sorted(samples)[int(0.95 * len(samples))] if len(samples) >= MIN_SAMPLES else None


def _depends_on_policy(record: RequestRecord) -> bool:
    """Return whether another policy could have served a rejected request.

    A request that is rejected while it is read has no side yet. Both sides share the limits that answer 429.
    """
    return record.timeline.spent[Stage.READ] is not None and record.status != _OVER_LIMIT


def _count(tally: EventCount, is_event: bool) -> None:
    tally.count += 1
    tally.events += is_event

"""CanaryCounts: what this process saw of a canary and of the revision beside it."""

from __future__ import annotations

import msgspec

from gateway.policies.canary import CanaryTrial
from gateway.telemetry.records.record import CacheResult, RequestRecord
from gateway.timeline import Outcome
from routing_policies.trial import EventCount, Side, new_side

MAX_SAMPLES = 200
"""Of the old revision's times to the first token, from which its 95th percentile is told."""
MIN_SAMPLES = 50
_MAX_ANSWERS = 20_000
"""Whose verdict may still come."""

_FAILED = frozenset({Outcome.FAILED, Outcome.UPSTREAM_FAILED, Outcome.UPSTREAM_TIMEOUT})
_ANSWERED = frozenset({Outcome.COMPLETED, Outcome.CACHED})


class Published(msgspec.Struct):
    """One process' counts, as the others read them."""

    old: Side
    new: Side
    samples: list[float]
    """Milliseconds."""


class CanaryCounts:
    """Told of every request while a canary runs; costs two comparisons for those that are neither's."""

    def __init__(self, canary: CanaryTrial) -> None:
        self.canary = canary
        self.published = Published(new_side(), new_side(), [])
        self._base: str = canary.base["revision"]
        self._answers: dict[str, tuple[str, Side]] = {}
        self.has_changed = False

    def note(self, record: RequestRecord) -> None:
        """One request is over."""
        side = self._side(record)
        outcome = record.outcome
        if side is None or outcome is Outcome.CANCELLED or outcome is Outcome.REJECTED:
            return
        self.has_changed = True
        _count(side["shed"], outcome is Outcome.SHED)
        _count(side["error"], outcome in _FAILED)
        if outcome in _ANSWERED:
            side["wrong"].count += 1
            self._remember(record, side)
            self._note_speed(record, side)

    def note_wrong(self, request_id: str, tenant: str) -> bool:
        """Whether the answer was one of this trial's; a product called it wrong."""
        found = self._answers.get(request_id)
        if found is None or found[0] != tenant:
            return False
        del self._answers[request_id]  # once is enough
        found[1]["wrong"].events += 1
        self.has_changed = True
        return True

    def note_audit(self, request_id: str, tenant: str, *, is_wrong: bool) -> None:
        """An audit of an answer, which may be one of this trial's."""
        found = self._answers.get(request_id)
        if found is not None and found[0] == tenant:
            _count(found[1]["audit"], is_wrong)
            self.has_changed = True

    def _side(self, record: RequestRecord) -> Side | None:
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
        """What the cache answered says nothing of how a deployment was chosen."""
        timeline = record.timeline
        if record.cache in (CacheResult.HIT_EXACT, CacheResult.HIT_SEMANTIC):
            return
        first_at = timeline.first_token_at
        ttft_ms = (timeline.total_s() if first_at is None else first_at - timeline.started_at) * 1000
        if self.canary.slow_above_ms is not None:
            _count(side["slow"], ttft_ms > self.canary.slow_above_ms)
        elif side is self.published.old and len(self.published.samples) < MAX_SAMPLES:
            self.published.samples.append(ttft_ms)


def add_up(all_of_them: list[Published]) -> Published:
    """The counts of several processes together."""
    total = Published(new_side(), new_side(), [])
    for one in all_of_them:
        total.samples += one.samples
        for mine, theirs in ((total.old, one.old), (total.new, one.new)):
            for measure, tally in theirs.items():
                mine[measure].events += tally.events
                mine[measure].count += tally.count
    return total


def slow_above_ms(samples: list[float]) -> float | None:
    """The 95th percentile, None while too few are known."""
    return sorted(samples)[int(0.95 * len(samples))] if len(samples) >= MIN_SAMPLES else None


def _count(tally: EventCount, is_event: bool) -> None:
    tally.count += 1
    tally.events += is_event

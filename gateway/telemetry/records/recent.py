"""RecentRequests: the last finished requests for operators, without prompts and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from typing import Any, Final, Literal

import msgspec

from gateway.telemetry.logs.log import clean
from gateway.telemetry.records.record import HandedOver, Neighbourhood, QuoteUse, RequestRecord
from gateway.timeline import STAGE_LABELS, Clock
from gateway.util.fair_bounded_dict import OwnerShares
from routing_policies.decision import Decision, Exploration

CAPACITY: Final = 2000
MAX_LISTED: Final = 500
_MAX_NAME_CHARS: Final = 256

Filter = Literal["outcome", "status", "tenant", "route", "deployment", "lane", "cache", "model"]


class ShownStage(msgspec.Struct, frozen=True):
    """Milliseconds spent in one stage."""

    stage: str
    ms: float


class ShownExploration(msgspec.Struct, frozen=True, kw_only=True):
    """Draw of a decision on a route that explores."""

    result: str
    """Outcome of the draw, as in the metric `routing_explorations_total`."""
    ratio: float
    preferred: str
    """Candidate that the policy would have chosen without exploration."""
    chosen: str
    probability: float
    """Probability of the chosen candidate under the policy that ran."""
    propensities: dict[str, float]
    """Probability of each candidate."""


class ShownDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Routing decision of one attempt."""

    deployment: str | None
    policy: str
    reason: str
    totals: dict[str, float]
    scores: dict[str, dict[str, float]]
    dropped: dict[str, str]
    cause: str = "first"
    """Cause of the choice, as in the metric `routing_decisions_total`."""
    qualities: dict[str, float] = {}
    """Quality of each candidate's answer, predicted or configured; empty where the policy does not compare it."""
    quality_threshold: float | None = None
    """Least quality that the policy takes; None without a threshold."""
    exploration: ShownExploration | None = None
    """Draw behind the choice; None on a route that does not explore."""


class ShownHandOver(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that a cascade began and abandoned."""

    deployment: str
    prompt_tokens: int
    completion_tokens: int


class ShownRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A finished request in the admin API; free text has gone through `clean`."""

    seq: int
    replica: str
    """Name of the process that served the request."""
    id: str
    at: float
    """Time of arrival, in seconds since 1970."""
    outcome: str
    status: int
    code: str | None
    tenant: str
    lane: str
    model: str
    route: str
    deployment: str
    stream: bool
    attempts: int
    cache: str
    cache_reason: str
    shed_reason: str | None
    degraded: tuple[str, ...]
    prompt_tokens: int | None
    completion_tokens: int | None
    ttft_ms: float | None
    total_ms: float


class ExplainedRequest(ShownRequest, frozen=True, kw_only=True):
    """A finished request with all recorded details."""

    detail: str | None
    client_request_id: str | None
    policy: str
    is_retry: bool
    is_incomplete: bool
    cancelled_while: str | None
    cache_entry: str | None
    neighbour: Neighbourhood | None
    trimmed: dict[str, int]
    cached_tokens: int | None
    predicted_tokens: tuple[int, int] | None
    """Accepted and rejected tokens of the prediction, the client's or a near miss."""
    bytes_in: int
    bytes_out: int
    tpot_ms: float | None
    stages: list[ShownStage]
    decisions: list[ShownDecision]
    handed_over: ShownHandOver | None = None
    quote: QuoteUse | None = None
    """Quote that the request sent back, with its bounds and whether they were met."""
    why: str = ""
    """Sentences that say who answered, and why; added for the reader."""


class RecentRequests:
    """Bounded records of finished requests, shared fairly by tenants; a view of one is computed when it is read."""

    __slots__ = ("_clock", "_records", "_wall", "name", "num_seen")

    def __init__(self, *, clock: Clock, wall: Clock, name: str = "", capacity: int = CAPACITY) -> None:
        """Create an empty collection.

        Args:
            clock: The monotonic clock that timed the records.
            wall: Wall clock, in seconds since 1970.
            name: Name of this process.
            capacity: Maximum number of records; beyond it, the tenant with the most loses its oldest.
        """
        self.name = name
        self._clock = clock
        self._wall = wall
        self._records: OwnerShares[int, RequestRecord] = OwnerShares(capacity)
        """Records of each tenant by sequence number."""
        self.num_seen = 0
        """Sequence number of the newest record; the first has 1."""

    def note(self, record: RequestRecord) -> None:
        """Add a finished request; no other code may use the record after this call, which shortens its names."""
        if len(record.model) > _MAX_NAME_CHARS:  # a client may send a name as long as a body
            record.model = record.model[:_MAX_NAME_CHARS]
        if record.client_request_id is not None and len(record.client_request_id) > _MAX_NAME_CHARS:
            record.client_request_id = record.client_request_id[:_MAX_NAME_CHARS]
        self.num_seen += 1
        self._records.part(record.tenant)[self.num_seen] = record
        self._records.settle(record.tenant, 1)

    def newest(
        self, *, after: int = 0, limit: int = MAX_LISTED, where: dict[Filter, str] | None = None
    ) -> list[ShownRequest]:
        """Return up to `limit` matching requests behind sequence number `after`, newest first."""
        since = self._wall() - self._clock()
        found: list[ShownRequest] = []
        for seq, record in self._numbered():
            if seq <= after or len(found) >= limit:
                break
            if not where or all(str(getattr(record, name)) == value for name, value in where.items()):
                found.append(ShownRequest(replica=self.name, **_summary(seq, record, since)))
        return found

    def find(self, request_id: str) -> ExplainedRequest | None:
        """Return the request with this id, or with this id from the client, or None when its record was evicted."""
        since = self._wall() - self._clock()
        for seq, record in self._numbered():
            if request_id in (record.request_id, record.client_request_id):
                return ExplainedRequest(replica=self.name, **_summary(seq, record, since), **_explanation(record))
        return None

    def _numbered(self) -> Iterator[tuple[int, RequestRecord]]:
        """Iterate over sequence numbers and records, newest first."""
        parts = [reversed(part.items()) for _, part in self._records]
        return merge(*parts, key=lambda item: -item[0])


def _summary(seq: int, record: RequestRecord, since: float) -> dict[str, Any]:
    usage, timeline = record.usage, record.timeline
    first_at = timeline.first_token_at
    return {
        "seq": seq,
        "id": record.request_id,
        "at": round(timeline.started_at + since, 3),
        "outcome": str(record.outcome or ""),
        "status": record.status,
        "code": record.code,
        "tenant": record.tenant,
        "lane": record.lane,
        "model": clean(record.model),
        "route": record.route,
        "deployment": record.deployment,
        "stream": record.stream,
        "attempts": record.attempts,
        "cache": str(record.cache),
        "cache_reason": record.cache_reason,
        "shed_reason": record.shed_reason,
        "degraded": record.degraded,
        "prompt_tokens": None if usage is None else usage.prompt_tokens,
        "completion_tokens": None if usage is None else usage.completion_tokens,
        "ttft_ms": None if first_at is None else round((first_at - timeline.started_at) * 1000, 3),
        "total_ms": round(timeline.total_s() * 1000, 3),
    }


def _explanation(record: RequestRecord) -> dict[str, Any]:
    usage, stages = record.usage, record.timeline.stages_ms()
    return {
        "detail": None if record.detail is None else clean(record.detail),
        "client_request_id": None if record.client_request_id is None else clean(record.client_request_id),
        "policy": record.policy,
        "is_retry": record.is_retry,
        "is_incomplete": record.is_incomplete,
        "cancelled_while": None if record.place is None else str(record.place),
        "cache_entry": record.cache_entry,
        "neighbour": record.neighbour,
        "trimmed": dict(record.trimmed),
        "cached_tokens": None if usage is None else usage.cached_tokens,
        "predicted_tokens": None if usage is None else usage.predicted_tokens,
        "bytes_in": record.bytes_in,
        "bytes_out": record.bytes_out,
        "tpot_ms": _tpot_ms(record),
        "stages": [ShownStage(stage, stages[stage]) for stage in STAGE_LABELS if stage in stages],
        "decisions": [_shown(decision) for decision in record.decisions],
        "quote": record.quote,
        "handed_over": None if record.handed_over is None else _hand_over(record.handed_over),
    }


def _tpot_ms(record: RequestRecord) -> float | None:
    usage, first_at = record.usage, record.timeline.first_token_at
    if usage is None or first_at is None or usage.completion_tokens < 2 or not record.stream:
        return None
    return round((record.timeline.last_at - first_at) / (usage.completion_tokens - 1) * 1000, 3)


def _shown(decision: Decision) -> ShownDecision:
    return ShownDecision(
        deployment=decision.deployment,
        policy=decision.policy,
        reason=decision.reason,
        totals={name: round(total, 4) for name, total in decision.totals.items()},
        scores={name: {what: round(s, 4) for what, s in scores.items()} for name, scores in decision.scores.items()},
        dropped={name: str(reason) for name, reason in decision.dropped.items()},
        cause=decision.cause,
        qualities={name: round(quality, 4) for name, quality in decision.qualities.items()},
        quality_threshold=decision.quality_threshold,
        exploration=None if decision.exploration is None else _shown_exploration(decision.exploration),
    )


def _shown_exploration(made: Exploration) -> ShownExploration:
    return ShownExploration(
        result=made.result,
        ratio=made.ratio,
        preferred=made.preferred,
        chosen=made.chosen,
        probability=round(made.probability, 6),
        propensities={name: round(share, 6) for name, share in made.propensities.items()},
    )


def _hand_over(left: HandedOver) -> ShownHandOver:
    usage = left.usage
    return ShownHandOver(
        deployment=left.deployment, prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens
    )


HOUR_S: Final = 3600.0
HOURS: Final = 24
_MAX_PAIRS: Final = 10_000
"""Maximum number of pairs counted in an hour; further ones are counted as `other`."""

Pair = tuple[str, str]
"""Tenant and route."""


class Count(msgspec.Struct, frozen=True):
    """One pair's requests in one hour."""

    hour: int
    tenant: str
    route: str
    requests: int
    since: float = 0.0
    """Instant in this hour from which the process counted; 0 from an earlier version, which counts whole hours."""


class RouteTraffic:
    """Counts of one process by hour; `wall` returns seconds since 1970."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._began_at = wall()
        self._hour = -1
        self._now: dict[Pair, int] = {}
        self._hours: dict[int, dict[Pair, int]] = {}
        self.begin_hour()

    def note(self, record: RequestRecord) -> None:
        """Count a finished request; those without a route are not counted."""
        if not record.route:
            return
        pair = (record.tenant, record.route)
        counts = self._now
        try:
            counts[pair] += 1
        except KeyError:
            counts[pair if len(counts) < _MAX_PAIRS else ("other", "other")] = 1

    def begin_hour(self) -> None:
        """Begin a new hour when it is due; called periodically."""
        hour = int(self._wall() // HOUR_S)
        if hour != self._hour:
            self._hour, self._now = hour, self._hours.setdefault(hour, {})
            for old in [old_hour for old_hour in self._hours if old_hour <= hour - HOURS]:
                del self._hours[old]

    def counts(self) -> list[Count]:
        """Return all counts."""
        return [
            Count(hour, tenant, route, requests, max(hour * HOUR_S, self._began_at))
            for hour, pairs in self._hours.items()
            for (tenant, route), requests in pairs.items()
        ]


def last_day(counts: list[Count], now: float) -> Mapping[Pair, int]:
    """Return sums over the last 24 hours, of counts from any number of processes."""
    oldest = int(now // HOUR_S) - HOURS
    sums: dict[Pair, int] = {}
    for count in counts:
        if count.hour > oldest:
            pair = (count.tenant, count.route)
            sums[pair] = sums.get(pair, 0) + count.requests
    return sums


def known_for_s(counts: list[Count], now: float) -> float:
    """Return the time that the counts of the last 24 hours span, in seconds; 0 without any."""
    oldest = int(now // HOUR_S) - HOURS
    begun = [max(count.since, count.hour * HOUR_S) for count in counts if count.hour > oldest]
    return max(0.0, now - min(begun)) if begun else 0.0


def encode_counts(counts: list[Count]) -> bytes:
    """Encode counts for the store."""
    return msgspec.json.encode(counts)


def decode_counts(value: bytes) -> list[Count]:
    """Decode counts from the store; empty when another version wrote them in another form."""
    try:
        return msgspec.json.decode(value, type=list[Count])
    except msgspec.DecodeError:
        return []

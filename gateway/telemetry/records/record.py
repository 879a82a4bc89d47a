"""RequestRecord: everything recorded about one request, filled while it is served and recorded exactly once."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from gateway.telemetry.logs.log import clean
from gateway.telemetry.records.cache_reasons import CacheReason
from gateway.telemetry.records.trace_context import TraceContext
from gateway.timeline import Outcome, Timeline
from routing_policies.decision import Decision


class CacheResult(StrEnum):
    """Result of the cache; with dashes for underscores the value of `x-penstock-cache`."""

    HIT_EXACT = "hit_exact"
    HIT_SEMANTIC = "hit_semantic"
    MISS = "miss"
    BYPASS = "bypass"

    @property
    def header(self) -> bytes:
        """Value of the response header."""
        return _CACHE_HEADERS[self]


_CACHE_HEADERS: Final = {result: result.value.replace("_", "-").encode("ascii") for result in CacheResult}


class RequestPhase(StrEnum):
    """Phase of a request when its client left."""

    QUEUED = "queued"
    CONNECTING = "connecting"
    PREFILL = "prefill"
    DECODE = "decode"


class Usage:
    """Token counts reported by the upstream; `cached_tokens` is None where it reports none."""

    __slots__ = ("cached_tokens", "completion_tokens", "predicted_tokens", "prompt_tokens")

    def __init__(
        self,
        prompt_tokens: int,
        completion_tokens: int,
        cached_tokens: int | None = None,
        predicted_tokens: tuple[int, int] | None = None,
    ) -> None:
        self.predicted_tokens = predicted_tokens
        """Accepted and rejected tokens of the request's prediction; None where the upstream reports none."""
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens
        self.cached_tokens = cached_tokens


class Neighbourhood(msgspec.Struct, frozen=True, kw_only=True):
    """Cached prompt nearest to the request's, and the decision about its response."""

    entry_id: str
    similarity: float
    """Cosine similarity; higher is closer."""
    runner_up: float | None = None
    """Similarity of the second nearest cached prompt."""
    match_probability: float | None = None
    """Match probability, calibrated; None when a guard decided earlier."""
    threshold: float | None = None
    """Threshold: the least match probability that is served."""
    served: bool
    drafted: bool = False
    """True if its response went to a deployment as a prediction."""
    why: str


QuoteUseKind = Literal["redeemed", "unreserved", "expired", "used", "other-body", "invalid"]
"""What the quote of a request is worth.

`redeemed`: it has the reserved permit. `unreserved`: its bounds count, and the permit is on another machine or belongs
to an earlier policy revision. The others do not count: it is `expired`, `used` before, for an `other-body`, or
`invalid`, as is that of another tenant.
"""
QuoteResult = Literal["met", "missed", "unknown"]
"""End of a quoted bound. `unknown`: the client left before it could be missed, or nothing was measured."""


class HandedOver(msgspec.Struct, frozen=True):
    """An answer that a cascade began and abandoned for a larger model's; its tokens were computed and are billed."""

    deployment: str
    usage: Usage
    """Usage from the upstream, else counted from the part that was read."""


class QuoteUse(msgspec.Struct, frozen=True, kw_only=True):
    """A quote that a request sent back, and what became of its bounds."""

    use: QuoteUseKind
    """As the response header `x-penstock-quote` states it."""
    bound_ms: float | None = None
    """Quoted bound of the time to first token; None where the quote does not count."""
    coverage: float | None = None
    result: QuoteResult | None = None
    """End of that bound, once the request is over."""
    price: float | None = None
    """Quoted bound of the price, in the policy's currency; None where the quote stated none."""
    price_result: QuoteResult | None = None


OMITTABLE: Final = frozenset({"client_request_id", "detail", "model", "tenant"})
"""Fields that the operator may omit from a request's log line."""


class RequestLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Log line of a request: free text already through `clean`, keys without a value left out.

    Every request makes one, and passing so many fields by name takes five times as long. `as_line` therefore passes
    them in order, which requires defaults for all. The default of a key that is always written is a value that no
    request has.
    """

    at: float
    event: Literal["request"]
    request_id: str
    client_request_id: str | None = None
    outcome: Outcome | None = None
    status: int = -1
    code: str | None = None
    detail: str | None = None
    tenant: str = ""
    lane: str = ""
    model: str = ""
    route: str = ""
    policy: str = ""
    deployment: str = ""
    cache: CacheResult | None = None
    stream: bool | None = None
    attempts: int = -1
    is_retry: bool = False
    is_incomplete: bool = False
    shed_reason: str | None = None
    degraded: tuple[str, ...] = ()
    cancelled_while: RequestPhase | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    num_chunks: int | None = None
    """Number of chunks of a stream without usage, as when its client left; each holds about one token."""
    handed_over_from: str | None = None
    handed_over_tokens: int | None = None
    bytes_in: int = -1
    bytes_out: int = -1
    ttft_ms: float | None = None
    total_ms: float = -1.0
    stages_ms: dict[str, float] | None = None
    quote: QuoteUse | None = None


class RequestRecord:
    """Record of one request; holds names and numbers only: no body, no key, no exception."""

    __slots__ = (
        "attempts",
        "bytes_in",
        "bytes_out",
        "cache",
        "cache_entry",
        "cache_reason",
        "client_request_id",
        "code",
        "decisions",
        "degraded",
        "deployment",
        "detail",
        "drafted",
        "gone_at",
        "handed_over",
        "ignored_headers",
        "is_incomplete",
        "is_retry",
        "lane",
        "model",
        "neighbour",
        "num_chunks",
        "outcome",
        "place",
        "policy",
        "quote",
        "request_id",
        "route",
        "sample",
        "shed_reason",
        "status",
        "stream",
        "tenant",
        "timeline",
        "trace",
        "trimmed",
        "usage",
        "was_sent",
    )

    def __init__(self, request_id: str, now: float) -> None:
        self.request_id = request_id
        self.timeline = Timeline(now)
        self.outcome: Outcome | None = None
        self.status = 0
        """HTTP status sent; 499 when the client left first."""
        self.code: str | None = None
        """Error code of the envelope, if any."""
        self.detail: str | None = None
        """Description of what happened, for the log only."""
        self.tenant = self.lane = ""
        self.model = ""
        """Model name in the request."""
        self.route = self.policy = self.deployment = ""
        self.cache = CacheResult.BYPASS
        self.trimmed: tuple[tuple[str, int], ...] = ()
        """Tokens cut by each trimming strategy."""
        self.cache_reason: CacheReason = "policy"
        """Reason for the cache result."""
        self.cache_entry: str | None = None
        """Id of the cache entry that was served."""
        self.neighbour: Neighbourhood | None = None
        """Nearest cached prompt; set when the semantic tier found one, served or not."""
        self.drafted = False
        """True if the nearest cached response went to the deployment that answered, as a prediction.

        The client must not see it.
        """
        self.decisions: tuple[Decision, ...] = ()
        """Routing decisions, one for each attempt."""
        self.stream = False
        self.attempts = 0
        self.is_retry = False
        """True if the client marked the request as a retry."""
        self.is_incomplete = False
        """True if the stream ended without a finish reason."""
        self.shed_reason: str | None = None
        self.degraded: tuple[str, ...] = ()
        """Steps of the degradation ladder that were applied, as the response header names them."""
        self.ignored_headers: tuple[str, ...] = ()
        """Headers without effect: malformed, or beyond what the caller may use."""
        self.place: RequestPhase | None = None
        """Phase of the request when its client left; None if it stayed."""
        self.gone_at: float | None = None
        """Monotonic time at which the client left."""
        self.usage: Usage | None = None
        self.quote: QuoteUse | None = None
        """Quote that the request sent back; None without one."""
        self.handed_over: HandedOver | None = None
        """Answer that a cascade abandoned, with its usage."""
        self.was_sent = False
        """True if a deployment was sent the request, and then a cached response was served in place of its own."""
        self.sample: dict[str, Any] | None = None
        """Features of the request for the recording; None where nothing is recorded."""
        self.trace: TraceContext | None = None
        """Trace of the request; None when it is not traced."""
        self.num_chunks = self.bytes_in = self.bytes_out = 0
        self.client_request_id: str | None = None

    @property
    def serial(self) -> str:
        """Return the part of the request id that is unique, for ids of the answer."""
        return self.request_id.removeprefix("req_")

    def as_line(self, at: float) -> RequestLine:
        """Return the log line of the finished request."""
        timeline, left = self.timeline, self.handed_over
        first_token_at, usage = timeline.first_token_at, self.usage
        return RequestLine(
            at,
            "request",
            self.request_id,
            None if self.client_request_id is None else clean(self.client_request_id),
            self.outcome,
            self.status,
            self.code,
            None if self.detail is None else clean(self.detail),
            self.tenant,
            self.lane,
            _clean_name(self.model),
            self.route,
            self.policy,
            self.deployment,
            self.cache,
            self.stream,
            self.attempts,
            self.is_retry,
            self.is_incomplete,
            self.shed_reason,
            self.degraded,
            self.place,
            None if usage is None else usage.prompt_tokens,
            None if usage is None else usage.completion_tokens,
            None if usage is None else usage.cached_tokens,
            (self.num_chunks or None) if usage is None else None,
            None if left is None else left.deployment,
            None if left is None else left.usage.prompt_tokens + left.usage.completion_tokens,
            self.bytes_in,
            self.bytes_out,
            None if first_token_at is None else _ms(first_token_at - timeline.started_at),
            _ms(timeline.total_s()),
            timeline.stages_ms(),
            self.quote,
        )


def _ms(seconds: float) -> float:
    """Convert non-negative seconds to milliseconds, rounded to a microsecond, at a quarter of round()'s cost."""
    return int(seconds * 1e6 + 0.5) / 1000


_clean_name = lru_cache(maxsize=256)(clean)
"""Cached `clean` for model names, of which few occur often."""

"""RequestRecord: everything that is remembered about one request, filled on its way and recorded exactly once."""

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
    """What the cache did; the value of `x-penstock-cache` with dashes for underscores."""

    HIT_EXACT = "hit_exact"
    HIT_SEMANTIC = "hit_semantic"
    MISS = "miss"
    BYPASS = "bypass"

    @property
    def header(self) -> bytes:
        """The header's spelling."""
        return _CACHE_HEADERS[self]


_CACHE_HEADERS: Final = {result: result.value.replace("_", "-").encode("ascii") for result in CacheResult}


class RequestPhase(StrEnum):
    """Where a request was when its client left."""

    QUEUED = "queued"
    CONNECTING = "connecting"
    PREFILL = "prefill"
    DECODE = "decode"


class Usage:
    """Tokens as the upstream counted them; None where it did not say."""

    __slots__ = ("cached_tokens", "completion_tokens", "prompt_tokens")

    def __init__(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int | None = None) -> None:
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens
        self.cached_tokens = cached_tokens


class Neighbourhood(msgspec.Struct, frozen=True, kw_only=True):
    """The kept question that came nearest to the one asked, and what was decided about its answer."""

    entry_id: str
    similarity: float
    """Cosine, higher is closer."""
    runner_up: float | None = None
    """Similarity of the second nearest."""
    chance_right: float | None = None
    """Calibrated P(the kept answer is right); None when a guard had decided before."""
    floor: float | None = None
    """The least chance that would have been served."""
    served: bool
    why: str


class HandedOver(msgspec.Struct, frozen=True):
    """An answer that was begun and left for a better one; its tokens were computed all the same."""

    deployment: str
    usage: Usage
    """As the upstream counted it, else what was read of it."""


OMITTABLE: Final = frozenset({"client_request_id", "detail", "model", "tenant"})
"""What a log may be told to leave out of a request's line."""


class RequestLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A request's line in the log: free text already through `clean`, keys without a value left out.

    One is made for every request, and given by name so many fields take five times as long: `as_line` gives them in
    order. That is why all have defaults; those of keys that are always there are no values that a request has.
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
    """Of a stream whose usage is not known, as when its client left: about a token came with each."""
    handed_over_from: str | None = None
    handed_over_tokens: int | None = None
    bytes_in: int = -1
    bytes_out: int = -1
    ttft_ms: float | None = None
    total_ms: float = -1.0
    stages_ms: dict[str, float] | None = None


class RequestRecord:
    """One request. Holds names and numbers only: no body, no key, no exception."""

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
    )

    def __init__(self, request_id: str, now: float) -> None:
        self.request_id = request_id
        self.timeline = Timeline(now)
        self.outcome: Outcome | None = None
        self.status = 0
        """HTTP status sent, 499 when the client left first."""
        self.code: str | None = None
        """Error code of the envelope, if any."""
        self.detail: str | None = None
        """For the log only: what happened in words."""
        self.tenant = ""
        self.lane = ""
        self.model = ""
        """As the client asked for it."""
        self.route = ""
        self.policy = ""
        self.deployment = ""
        self.cache = CacheResult.BYPASS
        self.trimmed: tuple[tuple[str, int], ...] = ()
        """Tokens that each strategy cut."""
        self.cache_reason: CacheReason = "policy"
        """Why, from the cache's closed set."""
        self.cache_entry: str | None = None
        """The kept answer that was given."""
        self.neighbour: Neighbourhood | None = None
        """Set when the semantic tier found a candidate, given or not."""
        self.decisions: tuple[Decision, ...] = ()
        """Of routing, one for each attempt."""
        self.stream = False
        self.attempts = 0
        self.is_retry = False
        """The client said that this is a retry."""
        self.is_incomplete = False
        """The stream ended without a finish reason."""
        self.shed_reason: str | None = None
        self.degraded: tuple[str, ...] = ()
        """Steps of the degrade ladder that were taken, as the header names them."""
        self.ignored_headers: tuple[str, ...] = ()
        """Headers whose value had no effect: nonsense, or beyond what the caller may use."""
        self.place: RequestPhase | None = None
        """Set when the client left."""
        self.gone_at: float | None = None
        """When it left, monotonic."""
        self.usage: Usage | None = None
        self.handed_over: HandedOver | None = None
        """What a cascade spent on the answer it did not give."""
        self.sample: dict[str, Any] | None = None
        """What a recording remembers of the request; None where nothing is recorded."""
        self.trace: TraceContext | None = None
        """Set when the request is traced."""
        self.num_chunks = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.client_request_id: str | None = None

    def as_line(self, at: float) -> RequestLine:
        """The log line of the finished request."""
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
        )


def _ms(seconds: float) -> float:
    """To a microsecond, for what is never negative; a quarter of round()'s price."""
    return int(seconds * 1e6 + 0.5) / 1000


_clean_name = lru_cache(maxsize=256)(clean)
"""Of the few model names that are asked for again and again."""

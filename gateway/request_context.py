"""RequestContext: the state of one chat request in the pipeline, and of its response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from gateway.access.api_keys import Caller
from gateway.admission.quotas.quota_headers import rate_limit_headers
from gateway.admission.quotas.reservation import Reservation
from gateway.admission.quotas.tenant_quota import TenantQuota
from gateway.cache.exact.cache_lookup import CacheLookup
from gateway.cache.exact.capture import Capture
from gateway.cache.semantic.semantic_lookup import SemanticLookup
from gateway.cache.semantic.semantic_tier import Embeds, Vector
from gateway.deployments.flight import InFlightRequest
from gateway.dialects.client_dialect import (
    OK,
    DialectExchange,
    StatefulExchange,
    TranslatedChannel,
    translated_response,
)
from gateway.errors import GatewayError, error_body, error_event, error_headers
from gateway.http.asgi import Header, Scope, Send, edge_channel, respond
from gateway.limits.body_budget import BodyReservation
from gateway.quotes.ttft_watch import TtftWatch
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.snapshot import PolicySnapshot
from gateway.routing.trial import Trial
from gateway.telemetry.records.answer_record import AnswerRecording
from gateway.telemetry.records.record import RequestPhase, RequestRecord
from gateway.timeline import Clock, Stage
from routing_policies.estimation.estimators import Price

_LONG_STREAM_BYTES: Final = 256 * 1024
"""Size of a stream whose translated end is made on a thread, because it may repeat all of the text."""
_TIMING: Final = b"admit;dur=%.3f, trim;dur=%.3f, cache;dur=%.3f, route;dur=%.3f, queue;dur=%.3f"


class AnswerConfidence(NamedTuple):
    """Probability that an answer which had begun is good enough, as a cascade estimated it."""

    deployment: str
    probability: float


class RequestContext:
    """The state of one request. `place` is the phase in which a client that leaves now would have left."""

    __slots__ = (
        "_timeline",
        "begin_lookup",
        "cache_salt",
        "caller",
        "capture",
        "channel",
        "clock",
        "confidence",
        "draft",
        "exchange",
        "flight",
        "gone_at",
        "has_started",
        "held",
        "hides_odds",
        "hold",
        "is_shadowed",
        "keeps_whole",
        "lookup",
        "place",
        "price",
        "quota",
        "ready_at",
        "record",
        "recording",
        "reservation",
        "responded_at",
        "routing_request",
        "semantic_lookup",
        "send",
        "snapshot",
        "vector_task",
        "wants_timing",
        "was_left",
        "watch",
    )

    def __init__(
        self,
        scope: Scope,
        send: Send,
        record: RequestRecord,
        snapshot: PolicySnapshot,
        clock: Clock,
        exchange: DialectExchange | None = None,
    ) -> None:
        channel = edge_channel(scope)
        self.channel = channel if channel is None or exchange is None else TranslatedChannel(channel, exchange)
        self.exchange = exchange
        """Translation of the request and of its answer; None for chat completions."""
        self.send, self.record, self._timeline = send, record, record.timeline
        self.snapshot, self.clock = snapshot, clock
        self.place = RequestPhase.QUEUED
        self.has_started = False
        """True if the status line is out: from here on only an error event can report a failure."""
        self.draft: str | None = None
        """Text of the nearest cached response, for deployments that take predictions; None without one."""
        self.responded_at: float | None = None
        self.ready_at: float | None = None
        """Time at which the response could have begun; it is held back for a lookup where that pays."""
        self.hold: Callable[[], Awaitable[None]] | None = None
        """Callback that holds a stream back; None: it begins at once."""
        self.wants_timing = False
        self.is_shadowed = False
        """True if its answer will be compared with another deployment's."""
        self.hides_odds = False
        """True if the answer has log-probabilities that the client did not request."""
        self.confidence: AnswerConfidence | None = None
        """Confidence by which a cascade decided; None where none did."""
        self.recording: AnswerRecording | None = None
        self.cache_salt = b""
        """Salt that separates the tenants' prefixes in an engine's KV cache."""
        self.gone_at: float | None = None
        self.capture: Capture | None = None
        """Copy of the answer for the cache, whose pending lookup is `lookup`; None if the cache does not want it."""
        self.lookup: CacheLookup | None = None
        self.semantic_lookup: SemanticLookup | None = None
        """Lookup of similar answers, where the route has one and it has begun."""
        self.begin_lookup: Callable[[bool], SemanticLookup | None] | None = None
        """Callback that begins it, or skips it on False; None: it has begun, or there is none."""
        self.vector_task: asyncio.Task[Vector | None] | None = None
        """Task that embeds the last user text; None if nothing has needed it."""
        self.keeps_whole = False
        """True if the client has turned trimming off, and the route lets it."""
        self.was_left = False
        """True if the client has gone while others wait for its answer."""
        self.caller: Caller | None = None
        self.routing_request: RoutingRequest | None = None
        self.flight: InFlightRequest | None = None
        """Exchange whose answer is being passed on."""
        self.price: Price | None = None
        self.held: BodyReservation | None = None
        """Memory reserved for its body, and for a whole answer to it; None if it is not counted."""
        self.watch: TtftWatch | None = None
        """Watch of its first token; None where the policy has no quotes."""
        self.quota: TenantQuota | None = None
        self.reservation: Reservation | None = None

    def enter(self, trial: Trial, caller: Caller) -> tuple[PolicySnapshot, Caller]:
        """Let a canary serve the request from here on."""
        snapshot = self.snapshot = trial.snapshot
        self.record.policy = snapshot.revision
        caller = self.caller = snapshot.keys.caller_of(caller.tenant) or caller
        return snapshot, caller

    def note_gone(self) -> None:
        """Note that the client has just left."""
        self.gone_at = self.clock()

    def stays_for_others(self, call_off: Callable[[], None]) -> bool:
        """Return whether the work goes on without the client, for identical requests that wait for its answer."""
        shared = None if self.lookup is None else self.lookup.leading
        self.was_left = shared is not None and shared.keeps_going(call_off)
        return self.was_left

    def vector(self, embedder: Embeds, text: str) -> asyncio.Task[Vector | None]:
        """Return a task with the embedding of the last user text, computed at most once.

        None when there is no time for it.
        """
        if self.vector_task is None:
            self.vector_task = asyncio.get_running_loop().create_task(embedder.embed(text), name="vector")
        return self.vector_task

    @property
    def known_vector(self) -> Vector | None:
        """Return the embedding of the last user text, if it is ready."""
        task = self.vector_task
        return None if task is None or not task.done() or task.cancelled() else task.result()

    def end_lookups(self) -> None:
        """Cancel the computations that still run for the finished request and will not be stored."""
        self.begin_lookup = None  # it leads back here
        if self.semantic_lookup is not None:
            self.semantic_lookup.close()
        elif self.vector_task is not None:
            self.vector_task.cancel()

    def note_sent(self) -> None:
        """Note that the request is on its way to the upstream."""
        self.place = RequestPhase.PREFILL

    def mark(self, stage: Stage) -> None:
        """Charge the time since the last mark to `stage`."""
        timeline, now = self._timeline, self.clock()
        spent, before = timeline.spent, timeline.spent[stage]
        # As in Timeline.mark: ten marks a request, each one call less.
        spent[stage] = now - timeline.last_at if before is None else before + now - timeline.last_at
        timeline.last_at = now

    def answer_headers(self) -> list[Header]:
        """Return the gateway's own headers of a chat answer in their current state."""
        record = self.record
        headers = [
            (b"x-request-id", record.request_id.encode("ascii")),
            (b"x-penstock-cache", record.cache.header),
            (b"x-penstock-policy", record.policy.encode("ascii")),
            (b"server-timing", self._server_timing()),
        ]
        if record.route:
            headers.append((b"x-penstock-route", record.route.encode("ascii")))
        if record.deployment:
            headers.append((b"x-penstock-deployment", record.deployment.encode("ascii")))
        if record.degraded:
            headers.append((b"x-penstock-degraded", ", ".join(record.degraded).encode("ascii")))
        if record.trimmed:
            headers.append((b"x-penstock-trimmed", _shown_cuts(record.trimmed)))
        if record.quote is not None:
            headers.append((b"x-penstock-quote", record.quote.use.encode("ascii")))
        if self.quota is not None:
            headers += rate_limit_headers(self.quota, self.clock())
        return headers

    async def begin(self, status: int, headers: list[Header]) -> None:
        """Send the status line and the headers; they leave with the first bytes of the body."""
        self.ready_at = self.clock()
        if self.hold is not None:
            await self.hold()
        self.record.status = status
        self.has_started, self.responded_at = True, self.clock()
        if self.exchange is not None:
            headers = self.exchange.headers(headers)
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, piece: bytes) -> None:
        """Send a piece of a stream through a server without a channel; waits for a slow client."""
        if self.exchange is not None:
            piece = self.exchange.feed(piece)
        if piece:
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        """Send the last bytes of the body."""
        if self.exchange is not None:
            is_long = self.record.bytes_out > _LONG_STREAM_BYTES
            finish = self.exchange.finish
            body = await asyncio.to_thread(finish, body) if is_long else finish(body)
            if isinstance(self.exchange, StatefulExchange):
                body = await self.exchange.keep(body)
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    async def answer(self, status: int, headers: list[Header], body: bytes) -> None:
        """Send a whole response."""
        if self.exchange is not None:
            headers, body = await translated_response(self.exchange, status, headers, body)
            if status == OK and isinstance(self.exchange, StatefulExchange):
                body = await self.exchange.keep(body)
        self.record.status = status
        self.record.bytes_out = len(body)
        self.has_started = True
        self.ready_at = self.responded_at = self.clock()
        if self.channel is not None:
            if not self.channel.respond(status, headers, body):
                await self.channel.drain()
        else:
            await respond(self.send, status, headers, body)

    def close_after(self) -> None:
        """Close the connection after this answer, which is not whole."""
        if self.channel is not None:
            self.channel.keep_alive = False

    async def fail(self, error: GatewayError) -> None:
        """Answer with the envelope, or end a stream that had begun with an error event and without `[DONE]`.

        The stream's framing is ended properly before the connection is closed: clients that find it cut off discard
        what they have not read yet, and that would be the error event.
        """
        self.record.code = error.code
        self.record.detail = self.record.detail or error.message
        if self.has_started:
            self.close_after()
            await self.end(error_event(error))
            return
        headers = [*error_headers(error), *self.answer_headers()]
        await self.answer(error.status, headers, error_body(error))

    def _server_timing(self) -> bytes:
        _, admit_s, trim_s, embed_s, cache_s, route_s, queue_s, connect_s, first_byte_s, _ = self._timeline.spent
        if embed_s is not None:
            cache_s = embed_s + (cache_s or 0.0)
        if admit_s is None or trim_s is None or cache_s is None or route_s is None or queue_s is None:
            entries = (
                *((b"admit", admit_s), (b"trim", trim_s), (b"cache", cache_s)),
                *((b"route", route_s), (b"queue", queue_s)),
            )
            known = [b"%b;dur=%.3f" % (name, took_s * 1000) for name, took_s in entries if took_s is not None]
            timing = b", ".join(known)
        else:  # all of them, in one go
            timing = _TIMING % (admit_s * 1e3, trim_s * 1e3, cache_s * 1e3, route_s * 1e3, queue_s * 1e3)
        if first_byte_s is None:
            return timing
        upstream = b"upstream;dur=%.3f" % (((connect_s or 0.0) + first_byte_s) * 1000)
        return b"%b, %b" % (timing, upstream) if timing else upstream


def _shown_cuts(cuts: Sequence[tuple[str, int]]) -> bytes:
    """Return what trimming removed, as `tokens=120;strategies=minify,drop_old_turns`."""
    strategies = ",".join(strategy for strategy, _ in cuts)
    return f"tokens={sum(tokens for _, tokens in cuts)};strategies={strategies}".encode("ascii")

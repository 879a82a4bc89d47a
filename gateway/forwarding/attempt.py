"""AttemptRunner: one attempt at one deployment, up to the first byte for the client.

Before that byte the client has received nothing, so another attempt can repair any failure, and open connections
can be closed without a trace. After it the answer can only be passed on, or broken off with an error event.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from gateway.admission.admitter import too_late
from gateway.admission.gate import AdmissionDecision
from gateway.chat.headers import ChatHead
from gateway.chat.json_members import with_cache_salt, with_members, without_members
from gateway.chat.operation import CHAT
from gateway.chat.request import ChatRequest
from gateway.deployments.flight import InFlightRequest, hidden_stream_bound_s, plain_bound_s, stream_bound_s
from gateway.deployments.health.attempt_watch import AttemptWatch
from gateway.deployments.health.ejection import FailureKind
from gateway.deployments.live import LiveDeployment
from gateway.deployments.load_report import ORCA_HEADER
from gateway.errors import GatewayError, InvalidRequest, UpstreamFailed
from gateway.forwarding.error_mapping import (
    OK,
    PASSED_BACK,
    RetryElsewhere,
    failure_of,
    from_transport,
    is_retryable,
)
from gateway.forwarding.relay import relay_plain, relay_stream
from gateway.forwarding.resume.resume_order import ResumeOrder
from gateway.forwarding.resume.text_channel import TextChannel
from gateway.forwarding.resume.token_channel import TokenChannel
from gateway.forwarding.stream_head import head_of
from gateway.forwarding.whole_answers import WholeAnswers, read_whole
from gateway.http.asgi import Header
from gateway.limits.body_budget import BodyReservation
from gateway.limits.permit import Permit
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.sampling import plain_body
from gateway.telemetry.records.answer_record import AnswerRecording
from gateway.telemetry.records.model_state import STATE_REQUEST
from gateway.telemetry.records.record import RequestPhase
from gateway.timeline import Clock, Stage, upstream_request_id
from gateway.upstreams.http1.errors import ConnectError, ConnectTimeout, Stalled, UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest
from gateway.upstreams.http1.response import UpstreamResponse
from gateway.upstreams.http1.sse import EVENT_STREAM
from gateway.util.header_values import media_type

_JSON: Final = b"application/json"
_TTFT_HEADER: Final = b"x-penstock-ttft-ms"
"""Header of an engine's plain answer: milliseconds from receipt to its first token."""
_TTFT_MS: Final = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_ROUNDING_S: Final = 0.01
"""Seconds within which two instants count as one, read twice."""
_PREDICTION: Final = frozenset({"prediction"})


class ForwardRequest(msgspec.Struct, frozen=True, gc=False):
    """A request to be answered, with as many attempts as that takes."""

    ctx: RequestContext
    request: ChatRequest
    head: ChatHead
    admitted: AdmissionDecision
    planned: PlannedRoute
    began_at: float
    """Start of the first attempt; the route's total time counts from here."""
    is_assembled: bool = False
    """True if the client wants a plain answer that is assembled from a stream."""
    resume: ResumeOrder | None = None
    """Order for a stream that can be continued elsewhere; None for all other requests."""


class UpstreamAttempt:
    """An answer whose first byte has arrived and was not passed on yet. `close` returns all that it holds."""

    __slots__ = (
        "_clock",
        "_permit",
        "attempt_watch",
        "body",
        "can_move",
        "channel",
        "ctx",
        "first_token_at",
        "flight",
        "held",
        "is_assembled",
        "is_stream",
        "live",
        "max_output_tokens",
        "on_sent",
        "passed",
        "response",
        "routing_request",
        "sent_at",
        "takes_draft",
        "work",
    )

    def __init__(self, live: LiveDeployment, permit: Permit, attempt_watch: AttemptWatch, clock: Clock) -> None:
        self.live = live
        self._clock = clock
        self._permit = permit
        self.attempt_watch = attempt_watch
        self.response: UpstreamResponse | None = None
        self.sent_at = 0.0
        self.flight: InFlightRequest | None = None
        """Observation for the deployment's forecast; None until the request is on the wire."""
        self.first_token_at: float | None = None
        """Instant of a plain answer's first token, by the deployment's own report or the stream behind the answer.

        None where neither tells it.
        """
        self.passed: list[Header] = []
        """Headers that the client sees of an answer that is passed on whole."""
        self.body: bytes | None = None
        """A plain answer, whole; None for a stream."""
        self.channel: TokenChannel | TextChannel | None = None
        """Tokens or text of a stream that can be continued elsewhere; None for all others."""
        self.work: ForwardRequest | None = None
        """Request as it was sent, of such a stream."""
        self.can_move: Callable[[], bool] | None = None
        """Callback that returns True if another deployment takes the request now; None if a move is ruled out."""
        self.ctx: RequestContext | None = None
        """Context of the request that this attempt serves; None for an attempt that runs beside another."""
        self.on_sent: Callable[[UpstreamAttempt], None] | None = None
        """Callback for the moment at which the request is on the wire."""
        self.routing_request: RoutingRequest | None = None
        """Request as the deployment's forecast sees it; None if the forecast ignores the attempt."""
        self.is_stream = True
        self.is_assembled = False
        """True if a plain answer is assembled from the stream."""
        self.max_output_tokens: int | None = None
        """Maximum number of tokens that the request allows for an answer; None where it sets no limit."""
        self.takes_draft = False
        """True if the nearest cached response goes along as a prediction."""
        self.held: BodyReservation | None = None
        """Memory reserved for an answer that is held whole; None if it is not counted."""

    def note_sent(self, response: UpstreamResponse) -> None:
        """Note that the request is on the wire, on the connection of this response."""
        self.response = self.attempt_watch.response = response
        now = self.sent_at = self._clock()
        if self.ctx is not None:
            self.ctx.note_sent()
        if self.on_sent is not None:
            self.on_sent(self)
        if self.flight is not None:  # sent once more, on a new connection
            self.flight.ended(now, None)
        if self.routing_request is not None:
            routing_request, lane = self.routing_request, self.routing_request.admission_request.lane.engine_lane
            price = routing_request.price_at(self.live.id) if routing_request.held_tokens else routing_request.price
            self.flight = self.live.forecast.note_sent(now, price, lane=lane, is_stream=self.is_stream)
        self._expect(now)

    def _expect(self, now: float) -> None:
        """Set how long the deployment may be silent from here on."""
        if self.is_stream:
            usual_s = stream_bound_s(self.live, now, self.flight)
            if usual_s is not None:
                self.attempt_watch.expect(usual_s)
                return
        if self.flight is not None and (self.is_assembled or not self.is_stream):
            self.attempt_watch.expect_whole(self._whole_bound_s)

    def _whole_bound_s(self) -> float:
        """Return the seconds within which a plain answer is whole, or the stream behind it begins."""
        assert self.flight is not None, "only what is forecast has a bound"
        if self.is_stream:
            return hidden_stream_bound_s(self.flight)
        return plain_bound_s(self.live, self._clock(), self.flight, self.max_output_tokens)

    def note_first_byte(self, now: float) -> None:
        """Note that the stream has begun; the limit learns whether the deployment queues."""
        if self.is_assembled:
            self.first_token_at = now
        if self.flight is not None:
            self._permit.note_ttft(now - self.sent_at, self.flight.unqueued_ttft_s)

    def note_reported_ttft(self, value: bytes) -> None:
        """Note the time to first token in a header of the deployment; a malformed one counts as absent."""
        if _TTFT_MS.fullmatch(value) is None:
            return
        now = self._clock()
        self.first_token_at = min(self.sent_at + float(value) / 1000, now)
        if self.flight is not None and not self.is_stream:
            self.flight.first_token_was(self.first_token_at, now)
            self._permit.note_ttft(self.first_token_at - self.sent_at, self.flight.unqueued_ttft_s)

    def pass_as_json(self) -> None:
        """Let the client see `application/json` in place of the answer's own content type, the first header."""
        self.passed = [(b"content-type", _JSON), *self.passed[1:]]

    def move(self) -> None:
        """Leave a deployment that stalled before the first byte, if another would take the request."""
        if self.response is not None and self.can_move is not None and self.can_move():
            self.give_up(Stalled, f"deployment '{self.live.id}' holds requests and sends no tokens")

    def give_up(self, kind: type[UpstreamError], message: str) -> None:
        """Close the upstream's connection; the task that waits for the answer gets a `kind` error."""
        if self.response is not None:
            self.response.give_up(kind, message)

    def close(self) -> None:
        """Close what is not whole and return the permit. Idempotent."""
        self.on_sent = self.can_move = None  # they may lead back here
        if self.response is not None:
            self.response.close()
        self.attempt_watch.dropped()
        if self.flight is not None and not self.flight.is_ended:
            self.flight.ended(self._clock(), None)
        if self.held is not None:
            self.held.release()
        self._permit.release()


class Resumable(Protocol):
    """Stream that goes on elsewhere when its deployment fails."""

    attempt: UpstreamAttempt
    """Attempt that serves it now."""
    needs_done: bool
    """True if an end mark alone tells that it is whole."""

    async def proceed(self, error: UpstreamError | None) -> UpstreamResponse:
        """Return the stream that goes on; raises GatewayError."""
        ...


class AttemptRunner:
    """Runner of attempts at deployments: it passes their answers on, and reports results to the deployments' health."""

    __slots__ = ("_answers", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers = WholeAnswers(clock)

    async def open(
        self,
        work: ForwardRequest,
        live: LiveDeployment,
        *,
        can_move: Callable[[], bool] | None = None,
        on_sent: Callable[[UpstreamAttempt], None] | None = None,
        is_leading: bool = True,
    ) -> UpstreamAttempt:
        """Return the beginning of the answer; the caller closes it.

        `can_move` returns whether another deployment would take the request, when this one stalls or has no capacity.
        The time line and the place belong to the leading attempt; a hedge leaves them alone.

        Raises:
            RetryElsewhere: Another deployment may serve the request.
            GatewayError: The request fails.
        """
        ctx, admission_request = work.ctx, work.admitted.admission_request
        if is_leading:
            ctx.place = RequestPhase.QUEUED
        permit: Permit | None = None
        if work.admitted.reserved is not None and work.admitted.reserved.live is live:
            permit = await work.admitted.reserved.take(self._clock, admission_request.start_by)
        if permit is None:
            permit = live.limiter.try_acquire(admission_request) or await live.limiter.acquire(admission_request)
        attempt = UpstreamAttempt(live, permit, live.health.begin(self._clock()), self._clock)
        try:
            if is_leading:
                ctx.mark(Stage.QUEUE)
                ctx.place = RequestPhase.CONNECTING
                attempt.ctx = ctx
            attempt.on_sent = on_sent
            if can_move is not None:
                attempt.can_move = can_move
                attempt.attempt_watch.on_stalled = attempt.move
            attempt.routing_request, attempt.is_stream, attempt.is_assembled = (
                ctx.routing_request if work.request.operation.generates else None,
                work.request.stream,
                work.is_assembled,
            )
            attempt.max_output_tokens = work.request.max_output_tokens
            attempt.held = None if ctx.held is None else ctx.held.beside()
            attempt.takes_draft = ctx.draft is not None and live.takes_drafts
            await self._send(work, attempt, is_leading=is_leading)
        except BaseException:  # cancellation too: no caller could close it
            attempt.close()
            raise
        return attempt

    async def more(self, work: ForwardRequest, attempt: UpstreamAttempt) -> bool:
        """Wait for another piece of a stream that was not passed on yet; False at its end.

        Raises:
            RetryElsewhere: The stream broke.
        """
        assert attempt.response is not None, "an answer is open once its request was sent"
        try:
            return await attempt.response.wait_more()
        except UpstreamError as error:
            raise RetryElsewhere(self.lost(work, attempt, error)) from None

    async def rest(self, work: ForwardRequest, attempt: UpstreamAttempt) -> bytes:
        """Wait for all of a stream of which nothing was passed on.

        Raises:
            RetryElsewhere: Another deployment may serve the request.
            GatewayError: The request fails.
        """
        assert attempt.response is not None, "an answer is open once its request was sent"
        try:
            return await read_whole(attempt, attempt.response)
        except UpstreamError as error:
            failure = self.lost(work, attempt, error)
            raise RetryElsewhere(failure) if is_retryable(error) else failure from None

    async def pass_on(self, work: ForwardRequest, attempt: UpstreamAttempt) -> None:
        """Relay the answer to the client; the status line may be out when it fails.

        Raises:
            UpstreamFailed: The deployment failed.
            UpstreamTimedOut: The rest of the answer was too late.
        """
        ctx, attempt_watch = work.ctx, attempt.attempt_watch
        assert attempt.response is not None, "an answer is open once its request was sent"
        ctx.flight, ctx.record.drafted = attempt.flight, attempt.takes_draft
        try:
            if attempt.body is None:
                await relay_stream(ctx, attempt.response)
            else:
                ctx.record.timeline.first_token_at = attempt.first_token_at
                if ctx.watch is not None and attempt.first_token_at is not None:
                    ctx.watch.first_token(attempt.first_token_at)
                await relay_plain(ctx, attempt.response.status, attempt.passed, attempt.body)
        except UpstreamError as error:
            raise self.lost(work, attempt, error) from None
        except UpstreamFailed:
            attempt_watch.failed(self._clock(), FailureKind.BROKEN)
            raise
        if ctx.record.is_incomplete:
            attempt_watch.failed(self._clock(), FailureKind.BROKEN)
        else:
            attempt_watch.succeeded(self._clock())

    async def pass_on_resumable(self, work: ForwardRequest, resumption: Resumable) -> None:
        """Relay a stream to the client that goes on elsewhere when its deployment fails.

        Raises:
            GatewayError: A deployment failed, and no other continued the stream.
        """
        ctx, attempt = work.ctx, resumption.attempt
        assert attempt.response is not None, "an answer is open once its request was sent"
        ctx.flight, ctx.record.drafted = attempt.flight, attempt.takes_draft
        await relay_stream(ctx, attempt.response, resumption.proceed, needs_done=resumption.needs_done)
        resumption.attempt.attempt_watch.succeeded(self._clock())

    async def _send(self, work: ForwardRequest, attempt: UpstreamAttempt, *, is_leading: bool) -> None:
        """Send, check the status, wait for the first piece of a stream or all of a plain answer."""
        ctx, live = work.ctx, attempt.live
        timeouts = self._timeouts(work)
        try:
            message = _message(work, live, timeouts)
        except InvalidRequest as error:  # a deployment of another dialect may be able to express it
            raise RetryElsewhere(error) from None
        try:
            response = await live.client.send(message, timeouts, attempt.note_sent)
            if is_leading:
                ctx.record.timeline.charge(Stage.CONNECT, response.connect_s)
            if response.status != OK:
                self._answers.check_status(work, attempt, is_leading=is_leading)
            content_type, attempt.passed = self._heed(attempt, response)
            if ctx.recording is not None:
                ctx.recording.note_response(live.id, response.headers)
            may_stream = response.is_events or media_type(content_type) != _JSON
            if work.request.stream and response.status == OK and may_stream:
                response.expect_events()  # whatever its type: its first event decides
                try:
                    if live.dialect is not None:
                        response.translate(live.dialect.stream())
                    elif work.resume is not None:
                        self._join_channel(work, work.resume, attempt, response)
                    head = await head_of(response)
                except UpstreamFailed as error:
                    raise self._answers.unfit(attempt, error) from None
                if head.beginning != "answer":
                    self._answers.take_failed_head(work, attempt, head, is_leading=is_leading)
                    return
                now = self._clock()
                live.first_bytes.add(now, now - attempt.sent_at)
                attempt.note_first_byte(now)
            else:
                await self._answers.read(work, attempt, is_leading=is_leading)
        except UpstreamError as error:
            failure = self.lost(work, attempt, error, is_leading=is_leading)
            if isinstance(error, ConnectError | ConnectTimeout):
                live.is_ready = False  # until a probe succeeds
            raise RetryElsewhere(failure) if is_retryable(error) else failure from None
        finally:
            if is_leading:
                ctx.mark(Stage.UPSTREAM_FIRST_BYTE)

    def _join_channel(
        self, work: ForwardRequest, order: ResumeOrder, attempt: UpstreamAttempt, response: UpstreamResponse
    ) -> None:
        """Read what a stream needs to go on elsewhere: its tokens where the deployment reports them, else its text.

        Raises:
            RetryElsewhere: A stream was to go on, and this one is another.
        """
        channel = attempt.channel = order.channel(response.headers, attempt.live.continuation)
        attempt.work = work
        if channel is not None:
            response.translate(channel)
        elif order.begun is not None:
            raise RetryElsewhere(UpstreamFailed(f"Deployment '{attempt.live.id}' does not continue streams."))

    def _heed(self, attempt: UpstreamAttempt, response: UpstreamResponse) -> tuple[bytes, list[Header]]:
        """Read the content type, and the headers that the client sees of an answer that is passed on whole.

        Load headers of an answer count only for deployments that publish their load in no other way.
        """
        content_type, passed = b"", []
        for header in response.headers:
            name = header[0]
            if name == b"content-type":
                content_type = content_type or header[1]
            elif name in PASSED_BACK:
                passed.append(header)
            elif name == ORCA_HEADER:
                attempt.live.forecast.note_load_header(self._clock(), header[1])
            elif name == _TTFT_HEADER and response.status == OK:
                attempt.note_reported_ttft(header[1])
        return content_type, [(b"content-type", content_type or _JSON), *passed]

    def lost(
        self, work: ForwardRequest, attempt: UpstreamAttempt, error: UpstreamError, *, is_leading: bool = True
    ) -> GatewayError:
        """Report the failed exchange to the deployment's health and the record; return the error for the client."""
        now, deadline_at = self._clock(), work.admitted.deadline_at
        kind = failure_of(error)
        if kind is FailureKind.TIMEOUT and deadline_at is not None and now >= deadline_at - _ROUNDING_S:
            kind = None  # the client's patience ended, not the route's: the deployment may be healthy
        if kind is None:
            attempt.attempt_watch.dropped()
        else:
            attempt.attempt_watch.failed(now, kind)
        if is_leading:
            work.ctx.record.detail = str(error)
        return from_transport(error, attempt.live.id)

    def _timeouts(self, work: ForwardRequest) -> ExchangeTimeouts:
        """Return the route's timeouts, less the time of earlier attempts, and shortened to the client's deadline.

        For a client that reads a stream, that deadline concerns the first byte only.
        """
        planned, is_stream, deadline_at = work.planned, work.request.stream, work.admitted.deadline_at
        timeouts = planned.stream_timeouts if is_stream else planned.plain_timeouts
        is_first = work.ctx.record.attempts <= 1
        if deadline_at is None and is_first:
            return timeouts
        now = self._clock()
        spent_s = 0.0 if is_first else now - work.began_at
        assert timeouts.total_s is not None, "every route has a limit to the whole"
        assert timeouts.first_byte_s is not None, "every route has a limit to the first byte"
        total_s = max(timeouts.total_s - spent_s, _ROUNDING_S)
        first_byte_s = min(timeouts.first_byte_s, total_s)
        if deadline_at is not None:
            left_s = deadline_at - now
            if left_s <= 0:
                raise too_late(work.admitted.lane)
            first_byte_s = min(first_byte_s, left_s)
            total_s = total_s if is_stream and not work.is_assembled else min(total_s, left_s)
        return ExchangeTimeouts(timeouts.connect_s, first_byte_s, timeouts.inter_chunk_s, total_s)


def _fixed_headers(live: LiveDeployment, accept: bytes, priority: bytes) -> tuple[Header, ...]:
    """Return the headers that all such requests to the deployment share, and store them there."""
    fixed = (
        (b"content-type", _JSON),
        (b"accept", accept),
        (b"x-penstock-priority", priority),
        *(live.headers.sent if live.dialect is None else live.dialect.headers(live.headers.sent)),
    )
    live.fixed_headers[accept, priority] = fixed
    return fixed


def _message(work: ForwardRequest, live: LiveDeployment, timeouts: ExchangeTimeouts) -> UpstreamRequest:
    ctx, request = work.ctx, work.request
    kind = (EVENT_STREAM if request.stream else _JSON, work.admitted.admission_request.lane.upstream_priority)
    fixed = live.fixed_headers.get(kind) or _fixed_headers(live, *kind)
    headers = [
        (b"x-request-id", upstream_request_id(ctx.record.request_id)),
        (b"x-penstock-cache-salt", ctx.cache_salt),
        *work.head.passed_on(),
    ]
    if timeouts.total_s is not None:
        headers.append((b"x-penstock-deadline-ms", b"%d" % max(timeouts.total_s * 1000, 1)))
    if live.dialect is not None:
        headers += live.dialect.request_headers(request)
    elif request.projection is not None:
        headers += request.projection.headers
    adapter = work.planned.adapter
    path, body = _target(request, live, live.model if adapter is None else live.model_with(adapter))
    if work.resume is not None and live.dialect is None:
        begun = work.resume.begun
        if isinstance(begun, TextChannel):
            assert live.continuation is not None, "only such a deployment continues a text"
            body = begun.continued_body(body, live.continuation)
        elif live.headers.resume_key is not None:
            headers.append(work.resume.header(live.headers.resume_key))
            body = work.resume.in_body(body)
    if ctx.draft is not None and live.takes_drafts:
        body = with_members(body, {"prediction": {"type": "content", "content": ctx.draft}})
    elif live.prediction == "off" and "prediction" in request.document:
        body = without_members(body, _PREDICTION)
    if live.reads_cache_salt:
        body = with_cache_salt(body, request.document.get("cache_salt"), ctx.cache_salt)
    if ctx.recording is not None:
        headers.append(STATE_REQUEST)
        _note_sent(ctx.recording, request, live, adapter)
    return UpstreamRequest(b"POST", path, headers, body, fixed)


def _note_sent(draft: AnswerRecording, request: ChatRequest, live: LiveDeployment, adapter: str | None) -> None:
    """Note what the deployment gets; members that only its own API has cannot be sent again from a record."""
    is_plain = request.projection is None or live.dialect is None
    body = plain_body(request) if is_plain else None
    target = f"{live.url} {live.model_with(adapter)}"
    draft.note_sent(live.id, target, body, takes_seed=live.dialect is None)


def _target(request: ChatRequest, live: LiveDeployment, model: str) -> tuple[bytes, bytes]:
    """Return the path and the body with which the deployment takes the request, for its name of the model.

    Raises:
        InvalidRequest: The deployment's API has no such operation, or cannot express the request.
    """
    operation = request.operation
    if live.dialect is None:
        path = live.chat_path if operation is CHAT else live.path_of(operation.path)
        return path, request.body_for(model)
    endpoint = live.dialect.path(operation)
    if endpoint is None:
        raise InvalidRequest(f"Deployment '{live.id}' speaks '{live.dialect.name}', which has no {operation.name}.")
    return live.path_of(endpoint), live.dialect.body(request.in_dialect(live.dialect.name), model)

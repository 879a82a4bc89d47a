"""Forwarder: a permit, an upstream's answer, and a second deployment when the first could not be reached."""

from __future__ import annotations

from typing import Final

from gateway.admission.admitter import Admission, too_late
from gateway.chat_head import ChatHead
from gateway.errors import GatewayError
from gateway.http.asgi import Header
from gateway.relay import EVENT_STREAM, relay_plain, relay_stream
from gateway.request import ChatRequest
from gateway.routing.live import LiveDeployment
from gateway.routing.retry_budget import RetryBudget
from gateway.routing.router import PlannedRoute
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.record import Place
from gateway.timeline import Clock, Stage
from gateway.turn import Turn
from gateway.upstream_errors import PASSED_BACK, RETRYABLE, from_status, from_transport, is_retryable
from gateway.upstreams.errors import UpstreamError
from gateway.upstreams.request import UpstreamRequest
from gateway.upstreams.response import UpstreamResponse
from gateway.upstreams.timeouts import Timeouts

MAX_ATTEMPTS: Final = 2

_NO_ONE: Final[frozenset[str]] = frozenset()


class _TryAnother(Exception):
    """This deployment cannot take the request, and nothing of it was answered; `error` is what to say otherwise."""

    def __init__(self, error: GatewayError) -> None:
        super().__init__(error.message)
        self.error = error


class Forwarder:
    """Gets the answer for one request from one of its route's deployments to the client."""

    def __init__(self, *, clock: Clock, metrics: GatewayMetrics, budget: RetryBudget) -> None:
        self._clock = clock
        self._metrics = metrics
        self._budget = budget

    async def forward(
        self, turn: Turn, request: ChatRequest, head: ChatHead, admission: Admission, planned: PlannedRoute
    ) -> None:
        """Raises Shed, UpstreamFailed or UpstreamTimedOut; after the status line went out, these end the stream."""
        self._budget.earn()
        tried = _NO_ONE
        failure: GatewayError | None = None
        while True:
            try:
                live, decision = turn.snapshot.router.pick(planned, tried, admission.lane.id)
            except GatewayError:
                if failure is None:
                    raise
                raise failure from None  # what went wrong first says more than that nobody else is left
            turn.record.deployment = live.id
            turn.record.attempts += 1
            choice = "retry" if tried else ("wait" if decision.deployment is None else "first")
            self._metrics.decisions.labels(decision.policy, live.id, choice).value += 1.0
            turn.mark(Stage.ROUTE)
            try:
                await self._attempt(turn, request, head, admission, planned, live)
            except _TryAnother as another:
                failure = another.error
                tried = tried | {live.id}
                if len(tried) >= MAX_ATTEMPTS or not self._budget.spend():
                    raise failure from None
                self._metrics.retries.labels(live.id).inc()
            else:
                return

    async def _attempt(
        self,
        turn: Turn,
        request: ChatRequest,
        head: ChatHead,
        admission: Admission,
        planned: PlannedRoute,
        live: LiveDeployment,
    ) -> None:
        turn.place = Place.QUEUED
        permit = live.limiter.try_acquire(admission.lane) or await live.limiter.acquire(
            admission.lane, admission.deadline_at
        )
        with permit:
            turn.mark(Stage.QUEUE)
            timeouts = self._timeouts(request, planned, admission)
            turn.place = Place.CONNECTING
            try:
                message = _message(turn, request, head, admission, live, timeouts)
                async with await live.client.send(message, timeouts, turn.note_sent) as response:
                    await self._relay(turn, request, admission, live, response)
            except UpstreamError as error:
                turn.record.detail = str(error)
                failure = from_transport(error, live.id)
                if is_retryable(error):
                    live.is_ready = False  # until a probe says otherwise
                    raise _TryAnother(failure) from None
                raise failure from None

    async def _relay(
        self, turn: Turn, request: ChatRequest, admission: Admission, live: LiveDeployment, response: UpstreamResponse
    ) -> None:
        """Judge the status, then pass the answer on."""
        turn.record.timeline.charge(Stage.CONNECT, response.connect_s)
        headers = response.headers
        error = from_status(response.status, headers, live.id, admission.lane.id)
        if error is not None:
            turn.mark(Stage.UPSTREAM_FIRST_BYTE)
            turn.record.detail = f"upstream status {response.status}"
            if response.status in RETRYABLE:
                raise _TryAnother(error)
            raise error
        content_type, passed = _passed_on(response)
        if request.stream and response.status == 200 and content_type.startswith(EVENT_STREAM):
            await response.wait_body()
            turn.mark(Stage.UPSTREAM_FIRST_BYTE)
            await relay_stream(turn, response)
            return
        turn.mark(Stage.UPSTREAM_FIRST_BYTE)
        await relay_plain(turn, response, passed)

    def _timeouts(self, request: ChatRequest, planned: PlannedRoute, admission: Admission) -> Timeouts:
        """The route's, shortened to the client's own patience. For a stream that ends with the first byte."""
        timeouts = planned.stream_timeouts if request.stream else planned.plain_timeouts
        if admission.deadline_at is None:
            return timeouts
        left_s = admission.deadline_at - self._clock()
        if left_s <= 0:
            raise too_late(admission.lane)
        total_s = timeouts.total_s or left_s
        return Timeouts(
            connect_s=timeouts.connect_s,
            first_byte_s=min(timeouts.first_byte_s or left_s, left_s),
            inter_chunk_s=timeouts.inter_chunk_s,
            total_s=total_s if request.stream else min(total_s, left_s),
        )


def _passed_on(response: UpstreamResponse) -> tuple[bytes, list[Header]]:
    """The content type, and the headers that the client sees of an answer that is passed on whole."""
    content_type, passed = b"", []
    for header in response.headers:
        if header[0] == b"content-type":
            content_type = content_type or header[1]
        elif header[0] in PASSED_BACK:
            passed.append(header)
    content_type = content_type or b"application/json"
    return content_type, [(b"content-type", content_type), *passed]


def _message(
    turn: Turn,
    request: ChatRequest,
    head: ChatHead,
    admission: Admission,
    live: LiveDeployment,
    timeouts: Timeouts,
) -> UpstreamRequest:
    fixed = (
        (b"content-type", b"application/json"),
        (b"accept", EVENT_STREAM if request.stream else b"application/json"),
        (b"x-penstock-priority", admission.lane.id.encode("ascii")),
        *live.credentials,
    )
    headers = [
        (b"x-request-id", turn.record.request_id.encode("ascii")),
        (b"x-penstock-cache-salt", turn.cache_salt),
        *head.passed_on(),
    ]
    if timeouts.total_s is not None:
        headers.append((b"x-penstock-deadline-ms", b"%d" % (timeouts.total_s * 1000)))
    return UpstreamRequest(b"POST", live.chat_path, headers, request.body_for(live.model), fixed)

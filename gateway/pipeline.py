"""The spine: one chat request, in reading order: read → admit → trim → cache → route → forward → relay → record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.admission.admitter import Admitter, draining
from gateway.cache.bypass import AnswerCache
from gateway.chat_head import ChatHead
from gateway.errors import GatewayError, InternalError, RejectedRequest, RequestTooLarge, Shed, UpstreamTimedOut
from gateway.forward import Forwarder
from gateway.http.asgi import BodyTooLarge, ClientGone, Receive, Scope, Send, read_body
from gateway.http.disconnect import until_gone
from gateway.ids import RequestIds
from gateway.prompt_bound import refuse_hopeless
from gateway.relay import relay_kept
from gateway.request import ChatRequestParser, require_json
from gateway.routing.snapshot import PolicySnapshot
from gateway.telemetry.log import LogWriter
from gateway.telemetry.record import RequestRecord
from gateway.telemetry.recorder import Recorder
from gateway.timeline import Clock, Outcome, Stage
from gateway.trimming.pass_through import Trimmer
from gateway.turn import Turn

CLIENT_CLOSED_REQUEST: Final = 499
MAX_BODY_BYTES: Final = 16 * 1024 * 1024

_NO_HEADERS: Final[dict[str, str]] = {}


class ChatPipeline:
    """The ASGI application of `POST /v1/chat/completions`; every request is recorded exactly once, however it ends."""

    def __init__(
        self,
        *,
        policy: Callable[[], PolicySnapshot],
        parser: ChatRequestParser,
        admitter: Admitter,
        trimmer: Trimmer,
        cache: AnswerCache,
        forwarder: Forwarder,
        recorder: Recorder,
        log: LogWriter,
        ids: RequestIds,
        clock: Clock,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._policy = policy
        self._parser = parser
        self._admitter = admitter
        self._trimmer = trimmer
        self._cache = cache
        self._forwarder = forwarder
        self._recorder = recorder
        self._log = log
        self._ids = ids
        self._clock = clock
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        record = RequestRecord(self._ids.next(), self._clock())
        snapshot = self._policy()
        turn = Turn(scope, send, record, snapshot, self._clock)
        record.policy = snapshot.revision
        try:
            async with until_gone(scope, receive) as client:
                client.on_gone(turn.note_gone)
                await self._answer(turn, scope, client.receive)
        except ClientGone:
            record.outcome = Outcome.CANCELLED
            record.status = CLIENT_CLOSED_REQUEST
            record.code = "client_closed_request"
            record.place = turn.place
            record.gone_at = turn.gone_at
        except asyncio.CancelledError:
            # The drain ran out of time: say so, in the stream if it has begun, and let the cancellation go on.
            await self._fail(turn, draining(record.lane))
            raise
        finally:
            record.outcome = record.outcome or Outcome.FAILED
            record.timeline.mark(Stage.RELAY, self._clock())
            self._recorder.record(record)

    async def _answer(self, turn: Turn, scope: Scope, receive: Receive) -> None:
        try:
            await self._serve(turn, scope, receive)
        except GatewayError as error:
            await self._fail(turn, error)
        except ClientGone:
            raise
        except Exception as error:  # our own fault, whatever it is: the client gets an id, the log the cause
            self._log.failure("request_failed", error, request_id=turn.record.request_id)
            await self._fail(turn, InternalError(turn.record.request_id))

    async def _serve(self, turn: Turn, scope: Scope, receive: Receive) -> None:
        record, snapshot = turn.record, turn.snapshot
        head = ChatHead(scope["headers"])
        record.client_request_id = head.client_request_id
        record.is_retry = head.is_retry
        turn.wants_timing = head.wants_timing

        client = scope.get("client")
        caller = self._admitter.identify(snapshot, head, client[0] if client else None)
        record.tenant = caller.tenant
        turn.cache_salt = caller.cache_salt
        require_json(head.content_type, head.content_encoding)
        try:
            body = await read_body(receive, self._max_body_bytes)
        except BodyTooLarge as error:
            raise RequestTooLarge(f"{error} Send a smaller one.") from None
        record.bytes_in = len(body)
        request = self._parser.parse(body)
        record.model = request.model
        record.stream = request.stream
        turn.mark(Stage.READ)

        admission = self._admitter.admit(
            snapshot, head, caller, received_at=record.timeline.started_at, is_draining=_is_draining(scope)
        )
        record.lane = admission.lane.id
        turn.mark(Stage.ADMIT)

        router = snapshot.router
        planned = router.match(request.model, caller.tenant, head.all() if router.reads_headers else _NO_HEADERS)
        record.route = planned.route.id
        turn.mark(Stage.ROUTE)

        request = self._trimmer.trim(request, planned.route.trim)
        refuse_hopeless(request, planned.context_tokens)
        turn.mark(Stage.TRIM)

        lookup = self._cache.lookup(request, planned.route.cache, caller.tenant)
        record.cache = lookup.result
        turn.mark(Stage.CACHE)
        if lookup.answer is not None:
            await relay_kept(turn, request, lookup.answer, lookup.age_s)
            record.outcome = Outcome.CACHED
            return

        await self._forwarder.forward(turn, request, head, admission, planned)
        record.outcome = _outcome_of_status(record.status, is_incomplete=record.is_incomplete)

    async def _fail(self, turn: Turn, error: GatewayError) -> None:
        record = turn.record
        record.outcome = _outcome_of_error(error)
        if isinstance(error, Shed):
            record.shed_reason = error.reason
        await turn.fail(error)


def _is_draining(scope: Scope) -> bool:
    """Behind this gateway's own edge only; another server stops sending requests by itself."""
    state = scope.get("state")
    event = state.get("draining") if state else None
    return event is not None and event.is_set()


def _outcome_of_status(status: int, *, is_incomplete: bool) -> Outcome:
    if is_incomplete:
        return Outcome.UPSTREAM_FAILED
    return Outcome.COMPLETED if status < 400 else Outcome.REJECTED


def _outcome_of_error(error: GatewayError) -> Outcome:
    if isinstance(error, Shed):
        return Outcome.SHED
    if isinstance(error, RejectedRequest):
        return Outcome.REJECTED
    if isinstance(error, InternalError):
        return Outcome.FAILED
    return Outcome.UPSTREAM_TIMEOUT if isinstance(error, UpstreamTimedOut) else Outcome.UPSTREAM_FAILED

"""Pipeline of one chat request: read → admit → match → trim → cache → gate → route → forward → relay → record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

from gateway.access.api_keys import Caller
from gateway.admission.admitter import Admission, draining
from gateway.admission.context_check import may_be_hopeless
from gateway.admission.gate import AdmissionDecision
from gateway.background.follow_up import FollowUp
from gateway.cache.cache_stage import CacheStage
from gateway.cache.exact.capture import Capture
from gateway.chat.headers import ChatHead
from gateway.chat.operation import CHAT
from gateway.chat.request import ChatRequest
from gateway.dialects.client_dialect import ClientDialect, DialectExchange, translated_response
from gateway.errors import (
    GatewayError,
    InternalError,
    MethodNotAllowed,
    QuotaExceeded,
    RejectedRequest,
    Shed,
    UpstreamTimedOut,
    error_body,
    error_headers,
)
from gateway.forwarding.forward import Forwarder
from gateway.http.asgi import ClientGone, Header, Receive, Scope, Send, is_draining, respond, until_gone
from gateway.quotes.serving.open_quotes import OpenQuote
from gateway.quotes.serving.quote_endpoint import QuotedStages
from gateway.quotes.serving.quote_stage import QuoteStage
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.sampling import RecordingSampler, plain_body
from gateway.routing.snapshot import PolicyInForce
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.recorder import Recorder
from gateway.telemetry.records.answer_log import AnswerLog
from gateway.telemetry.records.answer_record import AnswerRecording
from gateway.telemetry.records.record import RequestRecord
from gateway.timeline import Clock, Outcome, RequestIds, Stage

CLIENT_CLOSED_REQUEST: Final = 499
_NO_HEADERS: Final[dict[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The stages that a request passes: `shared` are those of a quote's request, too."""

    shared: QuotedStages
    cache: CacheStage
    forwarder: Forwarder
    follow_up: FollowUp
    quotes: QuoteStage


class ChatPipeline:
    """The ASGI application of chat completions and of every dialect; each request is recorded exactly once."""

    def __init__(
        self,
        policy: PolicyInForce,
        stages: Stages,
        *,
        recorder: Recorder,
        log: LogWriter,
        ids: RequestIds,
        clock: Clock,
        sampler: RecordingSampler | None = None,
        answers: AnswerLog | None = None,
    ) -> None:
        """Create the pipeline; `sampler` records requests, `answers` their answers too, and None records nothing."""
        self._policy = policy
        self._admitter = stages.shared.admitter
        self._reader = stages.shared.reader
        self._trims = stages.shared.trims
        self._quotas = stages.shared.quotas
        self._cache = stages.cache
        self._admission = stages.shared.admission
        self._forwarder = stages.forwarder
        self._follow_up = stages.follow_up
        self._quotes = stages.quotes
        self._recorder = recorder
        self._log = log
        self._ids = ids
        self._clock = clock
        self._sampler = sampler
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one chat completion."""
        await self.serve(scope, receive, send, None)

    async def serve(self, scope: Scope, receive: Receive, send: Send, exchange: DialectExchange | None) -> None:
        """Serve one request, in the dialect of its exchange; None for chat completions."""
        snapshot = self._policy.snapshot
        assert snapshot is not None, "requests are served only after the first policy was loaded"
        record = RequestRecord(self._ids.next(), self._clock())
        ctx = RequestContext(scope, send, record, snapshot, self._clock, exchange)
        record.policy = snapshot.revision
        try:
            async with until_gone(scope, receive) as client:
                client.on_gone(ctx.note_gone)
                client.stays = ctx.stays_for_others
                await self._answer(ctx, scope, client.receive)
            if client.is_gone and ctx.was_left:
                raise ClientGone("The client left; its answer was finished for others.")
        except ClientGone:
            record.outcome = Outcome.CANCELLED
            record.status = CLIENT_CLOSED_REQUEST
            record.code = "client_closed_request"
            record.place = ctx.place
            record.gone_at = ctx.gone_at
        except asyncio.CancelledError:
            # The drain ran out of time: report it, in the stream if it has begun, and let the cancellation go on.
            await self._fail(ctx, draining(record.lane))
            raise
        finally:
            if ctx.lookup is not None:
                ctx.lookup.drop()
            ctx.end_lookups()
            if ctx.held is not None:
                ctx.held.release()
            record.outcome = record.outcome or Outcome.FAILED
            record.timeline.mark(Stage.RELAY, self._clock())
            if ctx.watch is not None:
                self._quotes.conclude(ctx, ctx.watch)
            if ctx.reservation is not None:
                self._quotas.settle(ctx, ctx.reservation)
            self._recorder.record(record)
            if ctx.recording is not None and self._answers is not None:
                self._answers.note(ctx.recording, record)

    async def refuse(self, scope: Scope, send: Send, exchange: DialectExchange, error: GatewayError) -> None:
        """Answer a request that cannot be served at this path, in its dialect; it is not recorded."""
        headers = [*error_headers(error), (b"x-request-id", self._ids.next().encode("ascii"))]
        headers, body = await translated_response(exchange, error.status, headers, error_body(error))
        await respond(send, error.status, headers, b"" if scope["method"] == "HEAD" else body)

    async def aclose(self) -> None:
        """Call off what requests left behind."""
        await self._cache.aclose()

    async def _answer(self, ctx: RequestContext, scope: Scope, receive: Receive) -> None:
        try:
            await self._serve(ctx, scope, receive)
        except GatewayError as error:
            await self._fail(ctx, error)
        except ClientGone:
            raise
        except Exception as error:  # our own fault, whatever it is: the client gets an id, the log the cause
            self._log.failure("request_failed", error, request_id=ctx.record.request_id)
            await self._fail(ctx, InternalError(ctx.record.request_id))

    async def _serve(self, ctx: RequestContext, scope: Scope, receive: Receive) -> None:
        record, snapshot = ctx.record, ctx.snapshot
        head = ChatHead(scope["headers"])
        client = scope.get("client")
        caller = self._admitter.identify(ctx, head, client[0] if client else None)
        request = await self._reader.read(ctx, head, receive)
        if snapshot.trial is not None and snapshot.trial.takes(caller.tenant, request):
            snapshot, caller = ctx.enter(snapshot.trial, caller)
        ctx.mark(Stage.READ)

        admission = self._admitter.admit(
            snapshot, head, caller, received_at=record.timeline.started_at, is_draining=is_draining(scope)
        )
        record.lane = admission.lane.id
        ctx.mark(Stage.ADMIT)

        planned = await self._match(ctx, request, head, caller)
        ctx.mark(Stage.ROUTE)
        quote = None
        if snapshot.policy.quotes is not None and request.operation.generates:
            quote = await self._quotes.begin(ctx, head, request, planned, snapshot.policy.quotes)

        ctx.keeps_whole = head.turns_off_trimming(is_allowed=planned.route.trim.client_may_turn_off)
        if planned.route.trim.strategies and not ctx.keeps_whole:
            request = await self._trims.trim(ctx, request, planned.route.trim)
        if ctx.recording is not None:
            _note_trimmed(ctx.recording, ctx, request, planned)
        if planned.context_tokens is not None and may_be_hopeless(request, planned.context_tokens):
            await self._reader.refuse_hopeless(request, planned)
        ctx.mark(Stage.TRIM)

        if (quota := self._quotas.by_tenant.get(caller.tenant)) is not None:
            await self._quotas.reserve(ctx, quota, request, planned)
            ctx.mark(Stage.ADMIT)

        if planned.route.cache.mode == "off":  # as a record begins: passed by, for the policy wants it so
            ctx.mark(Stage.CACHE)
        else:
            await self._reader.outline(request)
            if await self._cache.answer(ctx, request, head, planned):
                return

        if quote is None:
            admitted = await self._admission.admit(ctx, request, head, admission, planned)
        else:
            admitted = self._admit_quoted(ctx, request, head, admission, planned, quote)
        ctx.mark(Stage.ADMIT)
        if admitted.hit is not None and admitted.hit.answer is not None:
            await self._cache.give(ctx, admitted.request, admitted.hit)
            return

        if planned.route.select.shadow is not None:
            self._follow_up.draw(ctx, planned)
        outgoing = admitted.request if ctx.recording is None else self._copied(ctx, ctx.recording, admitted.request)
        forward = self._forwarder.forward(ctx, outgoing, head, admitted, planned)
        if ctx.semantic_lookup is None and ctx.begin_lookup is None:
            await forward
        elif await self._cache.race(ctx, request, planned, forward):
            return
        self._conclude(ctx, request, admitted, planned)

    def _admit_quoted(
        self,
        ctx: RequestContext,
        request: ChatRequest,
        head: ChatHead,
        admission: Admission,
        planned: PlannedRoute,
        quote: OpenQuote,
    ) -> AdmissionDecision:
        """Return the admission of a request with a quote, priced as it was quoted."""
        routing_request = quote.routing_request
        if routing_request is None:
            routing_request = self._admission.priced(ctx, quote.request or request, head, admission, planned)
        return self._quotes.admit(ctx, request, admission, quote, routing_request)

    async def _match(self, ctx: RequestContext, request: ChatRequest, head: ChatHead, caller: Caller) -> PlannedRoute:
        """Return the request's route; raises NotFound, ModelNotAllowed, or InvalidRequest for what it does not take."""
        record, router = ctx.record, ctx.snapshot.router
        headers = head.all() if router.reads_headers else _NO_HEADERS
        planned = router.match(request.model, caller.tenant, headers, request)
        record.route = planned.route.id
        if planned.has_field_rules:
            await self._reader.hold_route_rules(request, planned.route)
        if self._sampler is not None and request.operation is CHAT:  # a simulation replays conversations
            await self._reader.outline(request)
            record.sample = self._sampler.sample(request, head, router.header_names, caller.tenant)
            if self._answers is not None:
                ctx.recording = self._sampler.draft(request, head, router.header_names)
        return planned

    def _copied(self, ctx: RequestContext, draft: AnswerRecording, request: ChatRequest) -> ChatRequest:
        """Copy the answer for its record, and return the request with the seed that gives it again."""
        assert self._sampler is not None, "only sampled requests have a draft"
        if ctx.capture is None:
            ctx.capture = Capture(None) if ctx.held is None else Capture(None, ctx.held.try_grow)
        draft.capture = ctx.capture
        return self._sampler.seeded(draft, request)

    def _conclude(
        self, ctx: RequestContext, request: ChatRequest, admitted: AdmissionDecision, planned: PlannedRoute
    ) -> None:
        """Store a deployment's answer that was passed on, and learn from it."""
        record = ctx.record
        record.outcome = _outcome_of_status(record.status, is_incomplete=record.is_incomplete)
        if ctx.lookup is not None:
            self._cache.store(ctx, ctx.lookup, is_as_requested=admitted.request is request)
        self._follow_up.learn(ctx, admitted.request, planned)

    async def _fail(self, ctx: RequestContext, error: GatewayError) -> None:
        record = ctx.record
        if isinstance(error, QuotaExceeded):
            self._quotas.count_refusal(ctx, error)
        record.outcome = _outcome_of_error(error)
        if isinstance(error, Shed):
            record.shed_reason = error.reason
        await ctx.fail(error)


class DialectEndpoint:
    """The ASGI application of one dialect's endpoint."""

    __slots__ = ("_dialect", "_pipeline")

    def __init__(self, pipeline: ChatPipeline, dialect: ClientDialect) -> None:
        self._pipeline = pipeline
        self._dialect = dialect

    @property
    def path(self) -> str:
        """Return the path of the endpoint."""
        return self._dialect.path

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        sent: list[Header] = scope["headers"]
        exchange = self._dialect.begin(sent)
        if scope["method"] != "POST":
            return self._pipeline.refuse(scope, send, exchange, MethodNotAllowed(scope["method"], ["POST"]))
        headers = self._dialect.request_headers(sent)
        return self._pipeline.serve({**scope, "headers": headers}, receive, send, exchange)


def _note_trimmed(draft: AnswerRecording, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute) -> None:
    """Note the request as trimming left it, and the route's part in its answer."""
    draft.trimmed_request = plain_body(request)
    draft.keeps_whole = ctx.keeps_whole
    draft.adapter = planned.adapter or ""
    draft.cache_scope = "" if planned.route.cache.mode == "off" else planned.route.cache.scope


def _outcome_of_status(status: int, *, is_incomplete: bool) -> Outcome:
    if is_incomplete:
        return Outcome.UPSTREAM_FAILED
    return Outcome.COMPLETED if status < 400 else Outcome.REJECTED


def _outcome_of_error(error: GatewayError) -> Outcome:
    if isinstance(error, Shed):
        return Outcome.SHED
    if isinstance(error, (RejectedRequest, QuotaExceeded)):
        return Outcome.REJECTED
    if isinstance(error, InternalError):
        return Outcome.FAILED
    return Outcome.UPSTREAM_TIMEOUT if isinstance(error, UpstreamTimedOut) else Outcome.UPSTREAM_FAILED

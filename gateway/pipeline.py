"""The spine: one chat request, in reading order: read → admit → trim → cache → route → forward → relay → record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.access.api_keys import Caller
from gateway.admission.admitter import Admitter, draining
from gateway.admission.context_check import may_be_hopeless, refuse_hopeless
from gateway.admission.gate import AdmissionDecision, AdmissionGate
from gateway.admission.guard import OverloadGuard
from gateway.admission.ladder import Shortened, TooLongToTrim
from gateway.admission.quotas.quotas import Quotas
from gateway.admission.quotas.tenant_quota import TenantQuota
from gateway.background.quality_learner import Learner
from gateway.background.shadowing import Shadower
from gateway.background.task_group import BackgroundTasks
from gateway.cache.cache_stage import CacheStage
from gateway.cache.exact.exact_cache import ExactCache
from gateway.cache.exact.fingerprint import outline_of
from gateway.cache.semantic_stage import SemanticStage
from gateway.chat.headers import ChatHead
from gateway.chat.request import ChatRequest, ChatRequestParser, require_json
from gateway.chat.strict_json import LONG_BYTES, is_long
from gateway.deployments.price import Pricer
from gateway.errors import (
    GatewayError,
    InternalError,
    QuotaExceeded,
    RejectedRequest,
    RequestTooLarge,
    Shed,
    UpstreamTimedOut,
)
from gateway.forwarding.forward import Forwarder
from gateway.http.asgi import BodyTooLarge, ClientGone, Receive, Scope, Send, read_body
from gateway.http.disconnect import until_gone
from gateway.ids import RequestIds
from gateway.limits.body_budget import BodyBudget
from gateway.prompt_embedding import PromptEmbedding
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.sampling import RecordingSampler, note_verdict
from gateway.routing.snapshot import PolicySnapshot
from gateway.routing.trial import Trial
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.recorder import Recorder
from gateway.telemetry.records.record import RequestRecord
from gateway.telemetry.tracing.tracing import Tracing
from gateway.timeline import Clock, Outcome, Stage
from gateway.trimming.images import ImageShrinker
from gateway.trimming.trimmer import MAX_TRIMMED_HERE_BYTES, Trimmer
from gateway.util.footprint import READ_RATIO, parsed_bytes
from gateway.util.workers import Workers

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
        guard: OverloadGuard,
        trimmer: Trimmer,
        images: ImageShrinker,
        cache: ExactCache,
        similar: SemanticStage,
        pricer: Pricer,
        meanings: PromptEmbedding,
        gate: AdmissionGate,
        forwarder: Forwarder,
        learner: Learner,
        shadower: Shadower,
        quotas: Quotas,
        recorder: Recorder,
        log: LogWriter,
        ids: RequestIds,
        clock: Clock,
        workers: Workers,
        bodies: BodyBudget,
        max_body_bytes: int = MAX_BODY_BYTES,
        sampler: RecordingSampler | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        """`sampler` remembers requests for replay; None: nothing is recorded. `workers` read, trim and digest what is
        too long for the event loop. `bodies` bounds what requests hold in memory."""
        self._policy = policy
        self._parser = parser
        self._admitter = admitter
        self._guard = guard
        self._trimmer = trimmer
        self._images = images
        self._kept = CacheStage(cache, similar, BackgroundTasks(log.failure))
        self._similar = similar
        self._pricer = pricer
        self._meanings = meanings
        self._gate = gate
        self._forwarder = forwarder
        self._learner = learner
        self._shadower = shadower
        self._quotas = quotas
        self._recorder = recorder
        self._log = log
        self._ids = ids
        self._clock = clock
        self._workers = workers
        self._bodies = bodies
        self._max_body_bytes = max_body_bytes
        self._sampler = sampler
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        record = RequestRecord(self._ids.next(), self._clock())
        snapshot = self._policy()
        ctx = RequestContext(scope, send, record, snapshot, self._clock)
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
            # The drain ran out of time: say so, in the stream if it has begun, and let the cancellation go on.
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
            if ctx.reservation is not None:
                self._quotas.settle(ctx.reservation, record, ctx.price)
            self._recorder.record(record)

    async def aclose(self) -> None:
        """Call off what requests left behind."""
        await self._kept.aclose()

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
        caller = self._recognise(ctx, head, scope)
        request = await self._read(ctx, head, receive)
        if snapshot.trial is not None and snapshot.trial.takes(caller.tenant, request):
            snapshot, caller = _enter(snapshot.trial, ctx, caller)
        ctx.mark(Stage.READ)

        admission = self._admitter.admit(
            snapshot, head, caller, received_at=record.timeline.started_at, is_draining=_is_draining(scope)
        )
        record.lane = admission.lane.id
        ctx.mark(Stage.ADMIT)

        router = snapshot.router
        planned = router.match(
            request.model, caller.tenant, head.all() if router.reads_headers else _NO_HEADERS, request
        )
        record.route = planned.route.id
        if self._sampler is not None:
            await self._outline(request)
            record.sample = self._sampler.sample(request, head, router.header_names)
        ctx.mark(Stage.ROUTE)

        if planned.route.trim.strategies:
            request = await self._trim(ctx, request, planned)
        if may_be_hopeless(request, planned.context_tokens):
            await self._refuse_hopeless(request, planned)
        ctx.mark(Stage.TRIM)

        if (quota := self._quotas.of(caller.tenant)) is not None:
            await self._reserve(ctx, quota, request, planned)
            ctx.mark(Stage.ADMIT)

        if planned.route.cache.mode == "off":  # as a record begins: passed by, for the policy wants it so
            ctx.mark(Stage.CACHE)
        else:
            await self._outline(request)
            if await self._kept.answer(ctx, request, head, planned):
                return

        price = ctx.price or self._pricer.price(request, tenant=caller.tenant, route=record.route)
        claim, tpot_slo_s = self._admitter.claim(snapshot, head, admission, price)
        record.lane = claim.lane.id
        vector = await self._meanings.of(ctx, planned, request) if planned.judges and planned.encoders else None
        ask = planned.weighed(RoutingRequest(price, claim, tpot_slo_s=tpot_slo_s), request, caller.tenant, vector)
        if record.sample is not None and ask.verdict is not None:
            note_verdict(record.sample, ask.verdict)
        ask = router.with_history(ask, request)
        record.ignored_headers = head.ignored
        admitted = await self._admit(ctx, request, planned, ask)
        ctx.mark(Stage.ADMIT)
        if admitted.answer is not None and admitted.answer.answer is not None:
            await self._kept.give(ctx, admitted.request, admitted.answer)
            return

        if planned.route.select.shadow is not None:
            self._shadower.draw(ctx, planned)
        forward = self._forwarder.forward(ctx, admitted.request, head, admitted, planned)
        if ctx.semantic_lookup is None and ctx.begin_lookup is None:
            await forward
        elif (found := await self._similar.race(ctx, request, planned, forward)) is not None:
            await self._kept.give_similar(ctx, request, found)
            return
        self._conclude(ctx, request, admitted, planned)

    def _recognise(self, ctx: RequestContext, head: ChatHead, scope: Scope) -> Caller:
        """Who asks; raises InvalidApiKey, and Shed where the gateway itself has too much to do for this lane."""
        record, snapshot = ctx.record, ctx.snapshot
        record.client_request_id = head.client_request_id
        record.is_retry = head.is_retry
        ctx.wants_timing = head.wants_timing
        if self._tracing is not None:
            record.trace = self._tracing.begin(head)
        client = scope.get("client")
        caller = ctx.caller = self._admitter.identify(snapshot, head, client[0] if client else None)
        record.tenant = caller.tenant
        ctx.cache_salt = caller.cache_salt
        if self._guard.strain:
            lane, lanes = self._admitter.lane(snapshot, head, caller), snapshot.lanes.values()
            record.lane = lane.id
            self._guard.check(lane, max(other.rules.weight for other in lanes), is_retry=head.is_retry)
        return caller

    async def _read(self, ctx: RequestContext, head: ChatHead, receive: Receive) -> ChatRequest:
        """The body, understood; raises RejectedRequest, or Shed where there is no memory for it."""
        record = ctx.record
        require_json(head.content_type, head.content_encoding)
        held = ctx.held = self._bodies.open(record.tenant)
        try:
            if head.content_length > LONG_BYTES:
                await held.cover(READ_RATIO * head.content_length)
            body = await read_body(receive, self._max_body_bytes, ctx.channel, held)
            if not held.try_cover(num_bytes := parsed_bytes(body)):
                await held.cover(num_bytes)
        except BodyTooLarge as error:
            raise RequestTooLarge(f"{error} Send a smaller one.") from None
        except (RequestTooLarge, Shed):
            ctx.close_after()  # nobody reads the rest of what the client sends
            raise
        record.bytes_in = len(body)
        if is_long(body):
            request = await self._workers.run(self._parser.parse, body)
        else:
            request = self._parser.parse(body)
        record.model = request.model
        record.stream = request.stream
        return request

    def _conclude(
        self, ctx: RequestContext, request: ChatRequest, admitted: AdmissionDecision, planned: PlannedRoute
    ) -> None:
        """A deployment's answer was passed on: what is learned from it, kept of it, and compared with it."""
        record = ctx.record
        if record.usage is not None:
            self._pricer.settle(admitted.request, record.usage, tenant=record.tenant, route=record.route)
        record.outcome = _outcome_of_status(record.status, is_incomplete=record.is_incomplete)
        if ctx.lookup is not None:
            self._kept.store(ctx, ctx.lookup, is_as_asked=admitted.request is request)
        if planned.judges:
            self._learner.remember(ctx)
        if ctx.is_shadowed:
            self._shadower.cast(ctx, admitted.request, planned)

    async def _refuse_hopeless(self, request: ChatRequest, planned: PlannedRoute) -> None:
        """Raises InvalidRequest for a prompt that fits none of the route's deployments."""
        if len(request.raw) > LONG_BYTES:
            await self._workers.run(refuse_hopeless, request, planned.context_tokens)
        else:
            refuse_hopeless(request, planned.context_tokens)

    async def _outline(self, request: ChatRequest) -> None:
        """Of a long request make on a thread what the cache and recordings ask for."""
        if len(request.raw) > LONG_BYTES:
            await self._workers.run(outline_of, request)

    async def _admit(
        self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, ask: RoutingRequest
    ) -> AdmissionDecision:
        """What the gate decides; where it asks for a shorter form of a long request, that is made on a thread."""
        try:
            return self._gate.decide(ctx, request, planned, ask)
        except TooLongToTrim as wanted:
            shorter = await self._workers.run(self._trimmer.trim_more, wanted.request, wanted.rule)
            if shorter is not None:
                await self._outline(shorter)
            return self._gate.decide(ctx, request, planned, ask, Shortened(shorter))

    async def _trim(self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute) -> ChatRequest:
        """Shorter, where the route wants it; what was cut is recorded in tokens."""
        rule = planned.route.trim
        bytes_per_token = self._pricer.bytes_per_token(request, tenant=ctx.record.tenant)
        if request.text_bytes > MAX_TRIMMED_HERE_BYTES:
            trimmed = await self._workers.run(self._trimmer.trim, request, rule, bytes_per_token)
        else:
            trimmed = self._trimmer.trim(request, rule, bytes_per_token)
        cuts = [(strategy, int(cut / bytes_per_token)) for strategy, cut in trimmed.cut_bytes]
        request = trimmed.request
        if "downscale_images" in rule.strategies:
            request, cut_tokens = await self._images.shrink(request, rule.max_image_side_px)
            if cut_tokens:
                cuts.append(("downscale_images", cut_tokens))
        ctx.record.trimmed = tuple(cuts)
        return request

    async def _reserve(
        self, ctx: RequestContext, quota: TenantQuota, request: ChatRequest, planned: PlannedRoute
    ) -> None:
        """Take what the request is expected to use out of its tenant's quota; raises QuotaExceeded."""
        ctx.quota = quota
        price = ctx.price = self._pricer.price(request, tenant=ctx.record.tenant, route=planned.route.id)
        nano = self._quotas.price_of(price, planned.deployment_ids)
        tokens, nano = quota.bounded(price.prompt_tokens, price.output_tokens, nano)
        now = self._clock()
        ctx.reservation = quota.try_reserve(tokens, nano, now) or await quota.reserve(tokens, nano, now)

    async def _fail(self, ctx: RequestContext, error: GatewayError) -> None:
        record = ctx.record
        if isinstance(error, QuotaExceeded):
            self._quotas.count_refusal(record.tenant, error.limit)
        record.outcome = _outcome_of_error(error)
        if isinstance(error, Shed):
            record.shed_reason = error.reason
        await ctx.fail(error)


def _enter(trial: Trial, ctx: RequestContext, caller: Caller) -> tuple[PolicySnapshot, Caller]:
    """From here on the request is the canary's."""
    snapshot = ctx.snapshot = trial.snapshot
    ctx.record.policy = snapshot.revision
    caller = ctx.caller = snapshot.keys.caller_of(caller.tenant) or caller
    return snapshot, caller


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
    if isinstance(error, (RejectedRequest, QuotaExceeded)):
        return Outcome.REJECTED
    if isinstance(error, InternalError):
        return Outcome.FAILED
    return Outcome.UPSTREAM_TIMEOUT if isinstance(error, UpstreamTimedOut) else Outcome.UPSTREAM_FAILED

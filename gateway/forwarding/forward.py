"""Forwarder: an upstream's answer, from a second deployment when the first fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.admission.gate import AdmissionDecision
from gateway.admission.waiting_room import WaitingRoom
from gateway.chat.headers import ChatHead
from gateway.chat.request import ChatRequest
from gateway.deployments.health.second_attempts import RetryBudget
from gateway.deployments.live import LiveDeployment
from gateway.errors import GatewayError, Shed
from gateway.forwarding.attempt import AttemptRunner, ForwardRequest, UpstreamAttempt
from gateway.forwarding.cascade import Cascader
from gateway.forwarding.error_mapping import RetryElsewhere
from gateway.forwarding.hedging import Hedger
from gateway.forwarding.plain_streams import wants_stream
from gateway.forwarding.resume.resume_order import ResumeOrder, can_resume, is_greedy_text
from gateway.forwarding.resume.text_channel import TextChannel
from gateway.forwarding.resume.token_channel import TokenChannel
from gateway.forwarding.resumption import Resumption
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.routing_request import exploration_seed
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.records.record import RequestPhase
from gateway.timeline import Clock, Stage
from gateway.util.workers import Workers
from routing_policies.decision import Decision
from routing_policies.policy.members import group_of

MAX_ATTEMPTS: Final = 2

_NO_ONE: Final[frozenset[str]] = frozenset()


class Forwarder:
    """Forwarder of one request to a deployment of its route, and of the answer to the client."""

    def __init__(
        self,
        *,
        clock: Clock,
        metrics: GatewayMetrics,
        budget: RetryBudget,
        room: WaitingRoom,
        workers: Workers,
        draw_seed: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._room = room
        self._metrics = metrics
        self._budget = budget
        self._draw_seed = draw_seed
        self._attempts = AttemptRunner(clock)
        self._cascader = Cascader(self._attempts, metrics=metrics, workers=workers)
        self._hedger = Hedger(self._attempts, clock=clock, metrics=metrics)

    async def forward(
        self,
        ctx: RequestContext,
        request: ChatRequest,
        head: ChatHead,
        admission: AdmissionDecision,
        planned: PlannedRoute,
    ) -> None:
        """Forward the request and relay the answer.

        After the status line went out, the errors end the stream.

        Raises:
            Shed: No deployment is fit or in time.
            UpstreamFailed: The deployments failed.
            UpstreamTimedOut: The answer was too late.
        """
        self._budget.earn()
        order = None if planned.route.resume == "off" else self._order(request, planned)
        work = ForwardRequest(ctx, request, head, admission, planned, self._clock(), resume=order)
        attempt = await self._open(work)
        if attempt.channel is not None and attempt.body is None:
            await self._pass_on_resumable(work, attempt, attempt.channel)
            return
        try:
            await self._attempts.pass_on(work, attempt)
        finally:
            attempt.close()

    def _order(self, request: ChatRequest, planned: PlannedRoute) -> ResumeOrder | None:
        """Return the order for a stream that can be continued elsewhere; None for other requests."""
        if not can_resume(request):
            return None
        fit = [live.model for live, _ in planned.candidates if live.is_ready and live.headers.resume_key is not None]
        can_move = len(fit) > 1 and len(set(fit)) == 1
        is_text = (
            planned.route.resume == "best_effort"
            and planned.adapter is None
            and any(live.continuation is not None for live, _ in planned.candidates)
            and is_greedy_text(request)
        )
        return ResumeOrder(planned.route.resume, self._draw_seed(), can_move=can_move, is_greedy_text=is_text)

    async def _pass_on_resumable(
        self, work: ForwardRequest, attempt: UpstreamAttempt, channel: TokenChannel | TextChannel
    ) -> None:
        resumption = Resumption(
            attempt.work or work,
            attempt,
            channel,
            attempts=self._attempts,
            successors=_Successors(attempt.live.model, work, self._metrics, is_text=isinstance(channel, TextChannel)),
            metrics=self._metrics,
            clock=self._clock,
        )
        try:
            await self._attempts.pass_on_resumable(work, resumption)
        finally:
            resumption.close()

    async def _open(self, work: ForwardRequest) -> UpstreamAttempt:
        """Return the beginning of an answer, from the first deployment or, once, from another."""
        tried, rule = _NO_ONE, work.planned.route.select.hedge
        failure: GatewayError | None = None
        is_paid = False
        if work.planned.hedges is not None:
            work.planned.hedges.earn()
        while True:
            try:
                live = self._next(work, tried, failure, is_paid=is_paid)
            except Shed:
                if failure is not None or not await self._started(work):
                    raise
                continue
            # Without another deployment there is none to look for.
            move = _Move(self, work, tried | {live.id}) if work.planned.has_others else None
            can_move = None if move is None else move.decide
            try:
                may_inquire = not tried and live.dialect is None  # other APIs have no log-probabilities
                inquiry = work.planned.inquiry(live, work.ctx.routing_request) if may_inquire else None
                if inquiry is not None:
                    successor = partial(self._successor, work, live.id)
                    return await self._cascader.open(work, live, inquiry, successor, can_move)
                if not work.request.stream and self._wants_stream(work, live):
                    return await self._cascader.open_assembled(work, live, can_move)
                if tried or rule is None or not work.request.stream:
                    return await self._attempts.open(work, live, can_move=can_move)
                return await self._hedger.open(work, live, rule, can_move)
            except RetryElsewhere as another:
                failure = another.error
                is_paid = move is not None and move.is_paid
                tried = tried | {live.id}
                if len(tried) >= MAX_ATTEMPTS:
                    raise failure from None

    def _wants_stream(self, work: ForwardRequest, live: LiveDeployment) -> bool:
        return wants_stream(work.ctx, work.request, work.planned, live, self._clock())

    async def _started(self, work: ForwardRequest) -> bool:
        """Wait for a deployment that is starting; return False if none is.

        Raises:
            Shed: The start takes too long.
        """
        ctx = work.ctx
        ctx.place = RequestPhase.QUEUED
        since = self._clock()
        try:
            has_waited = await self._room.until_ready(work.planned, work.admitted.admission_request)
        finally:
            ctx.mark(Stage.QUEUE)
        if has_waited:
            ctx.record.detail = f"waited {self._clock() - since:.1f} s for a deployment to start"
        return has_waited

    def _next(
        self, work: ForwardRequest, tried: frozenset[str], failure: GatewayError | None, *, is_paid: bool
    ) -> LiveDeployment:
        """Pick the deployment for the next attempt.

        Args:
            work: The request.
            tried: Ids of the deployments that had an attempt.
            failure: Failure of the last attempt; None for the first attempt.
            is_paid: True if the gateway's part of the budget was spent when the move was decided.

        Raises:
            GatewayError: `failure`, when no deployment is left or no budget for it.
        """
        ctx = work.ctx
        try:
            live, decision = self._pick(work, tried)
        except GatewayError:
            if failure is None:
                raise
            raise failure from None  # the first failure is more useful than the lack of another deployment
        if failure is None:
            live.retries.earn()
        elif not (live.retries.spend() if is_paid else self._budget.spend_with(live.retries)):
            raise failure
        else:
            self._metrics.retries.labels(group_of(ctx.record.deployment)).inc()
        if decision.is_panic:
            self._metrics.panics.labels(work.planned.route.id).inc()
        choice = "retry" if tried else ("wait" if decision.deployment is None else decision.cause)
        self._metrics.decisions.labels(decision.policy, live.group, choice).value += 1.0
        if decision.exploration is not None:
            self._metrics.explorations.labels(work.planned.route.id, decision.exploration.result).inc()
        if ctx.watch is not None and not tried and ctx.routing_request is not None:
            request, admission_request = ctx.routing_request, work.admitted.admission_request
            ctx.watch.begin(self._clock(), live, request.price_at(live.id), admission_request)
        ctx.record.deployment = live.id
        ctx.record.attempts += 1
        ctx.record.decisions += (decision,)
        ctx.mark(Stage.ROUTE)
        return live

    def _successor(self, work: ForwardRequest, first: str) -> LiveDeployment | None:
        """Return the deployment that takes over from the first of a cascade; None when none can at once.

        Other members of the first one's group are no successors: they have the same model.
        """
        group = group_of(first)
        peers = frozenset(one for one in work.planned.deployment_ids if group_of(one) == group)
        try:
            live, decision = self._pick(work, peers)
        except Shed:
            return None
        return live if decision.deployment is not None else None

    def _pick(self, work: ForwardRequest, tried: frozenset[str]) -> tuple[LiveDeployment, Decision]:
        """Pick a deployment that is in time, else any fit one.

        Raises:
            Shed: None is fit.
        """
        ctx, seed = work.ctx, None
        if work.planned.explore is not None and not tried and work.admitted.stand_in is None:
            seed = exploration_seed(ctx.record.request_id, work.request)
        return work.admitted.pick(ctx.snapshot.router, work.planned, tried, ctx.routing_request, seed)

    def may_move(self, work: ForwardRequest, tried: frozenset[str]) -> bool:
        """Return whether another attempt can be made now; True means that its budget is spent."""
        return (
            len(tried) < MAX_ATTEMPTS
            and self._budget.can_spend
            and work.ctx.snapshot.router.has_another(work.planned, tried)
            and self._budget.spend()
        )


class _Move:
    """One request's permission to move to another deployment.

    The budget is spent at the decision: many requests at a stalled deployment decide in one instant, and those
    without budget stay.
    """

    __slots__ = ("_forwarder", "_tried", "_work", "is_paid")

    def __init__(self, forwarder: Forwarder, work: ForwardRequest, tried: frozenset[str]) -> None:
        self._forwarder = forwarder
        self._work = work
        self._tried = tried
        self.is_paid = False

    def decide(self) -> bool:
        """Return whether the request moves to another deployment; True means that the move has begun."""
        self.is_paid = self.is_paid or self._forwarder.may_move(self._work, self._tried)
        return self.is_paid


class _Successors:
    """Candidates of a request that can continue its stream: those with its model, and the same way to go on."""

    __slots__ = ("_is_text", "_metrics", "_model", "_work")

    def __init__(self, model: str, work: ForwardRequest, metrics: GatewayMetrics, *, is_text: bool) -> None:
        self._model = model
        self._work = work
        self._metrics = metrics
        self._is_text = is_text

    def exist(self, without: str) -> bool:
        """Return whether one is ready beside the deployment with this id."""
        candidates = self._work.planned.candidates
        return any(live.id != without and live.is_ready and self._fits(live) for live, _ in candidates)

    def pick(self, work: ForwardRequest, tried: frozenset[str]) -> LiveDeployment | None:
        """Return the best one of which none has these ids; None where there is none."""
        ctx, router = work.ctx, work.ctx.snapshot.router
        others = frozenset(live.id for live, _ in work.planned.candidates if not self._fits(live))
        try:
            live, decision = router.pick(work.planned, tried | others, work.admitted.lane.id, ctx.routing_request)
        except Shed:
            return None
        if not self._fits(live):  # a fallback's
            return None
        self._metrics.decisions.labels(decision.policy, live.group, "resume").value += 1.0
        ctx.record.deployment = live.id
        ctx.record.attempts += 1
        ctx.record.decisions += (decision,)
        return live

    def _fits(self, live: LiveDeployment) -> bool:
        if live.model != self._model or live.dialect is not None or not live.may_be_ready:
            return False
        return (live.continuation if self._is_text else live.headers.resume_key) is not None

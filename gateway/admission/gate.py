"""AdmissionGate: decides at once, from the deployments' forecasts, whether and in which form a request is admitted.

(1) A request with neither a latency target nor a deadline goes on; only the queue's bound can refuse it. (2) If a
candidate is forecast to be in time, the request goes on without the late ones. Where none is ready and one is
starting, that one counts, with the time until it is ready. (3) Else the lane's ladder applies: each step makes a
lesser request, and the first that would be in time goes on. (4) Else the request is refused now, with a hint at what
would be admitted; or, where the ladder does not end in `shed`, served late.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.admission.admitter import Admission, Admitter
from gateway.admission.candidate_forecast import CandidateForecast, CandidateForecaster, CandidateForecasts
from gateway.admission.hints import lane_elsewhere, misses_deadline, refusal_of
from gateway.admission.ladder import DegradationStep, Ladder, Shortened, TooLongToTrim
from gateway.admission.request_reader import RequestReader
from gateway.cache.exact.cache_lookup import CacheLookup
from gateway.chat.headers import ChatHead
from gateway.chat.request import ChatRequest
from gateway.deployments.live import LiveDeployment
from gateway.deployments.price import Pricer
from gateway.errors import Shed
from gateway.limits import refusal
from gateway.limits.lane import LiveLane
from gateway.limits.permit import AdmissionRequest
from gateway.prompt_embedding import PromptEmbedding
from gateway.quotes.reserved_permit import PermitReservation
from gateway.request_context import RequestContext
from gateway.routing.candidate import Seen
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.router import Router
from gateway.routing.routing_request import ExplorationSeed, RoutingRequest
from gateway.routing.sampling import note_verdict
from gateway.timeline import Clock
from gateway.trimming.trim_stage import TrimStage
from gateway.trimming.trimmer import summed_cuts
from routing_policies.decision import Decision

_NOBODY: Final[frozenset[str]] = frozenset()
_SHED_ONLY: Final = ("shed",)


class AdmissionDecision(msgspec.Struct, frozen=True):
    """A request that may go to a deployment."""

    request: ChatRequest
    """Request to forward, after the cuts of the degradation ladder."""
    admission_request: AdmissionRequest
    avoid: frozenset[str] = _NOBODY
    """Deployments that would be late; used only when no other is left."""
    stand_in: PlannedRoute | None = None
    """Route that supplies the deployment instead of the request's own."""
    hit: CacheLookup | None = None
    """Stored response that is served instead."""
    seen: tuple[Seen, ...] = ()
    """Candidates as they were forecast here: the first attempt chooses by these, and forecasts none of them again."""
    reserved: PermitReservation | None = None
    """Permit that a quote reserved for the first attempt; None without a quote."""

    def pick(
        self,
        router: Router,
        planned: PlannedRoute,
        tried: frozenset[str],
        routing_request: RoutingRequest | None,
        seed: ExplorationSeed | None = None,
    ) -> tuple[LiveDeployment, Decision]:
        """Pick a deployment that is in time, else any fit one; the first attempt takes that of a reserved permit.

        Raises:
            Shed: None is fit.
        """
        if self.reserved is not None and not tried and self.reserved.is_fit:
            return self.reserved.live, self.reserved.decision
        lane, seen = self.admission_request.lane.id, () if tried else self.seen
        if self.stand_in is not None:
            try:
                return router.pick(self.stand_in, tried, lane, routing_request, seen=seen)
            except Shed:
                return router.pick(planned, tried, lane, routing_request)
        return router.pick(planned, tried, lane, routing_request, self.avoid, seen, seed)

    @property
    def lane(self) -> LiveLane:
        """Return the lane in which the request waits if it has to."""
        return self.admission_request.lane

    @property
    def deadline_at(self) -> float | None:
        """Monotonic instant after which the client no longer waits for a first byte."""
        return self.admission_request.deadline_at


class AdmissionGate:
    """Admits, degrades or refuses."""

    __slots__ = ("_clock", "_forecaster", "_ladder")

    def __init__(self, *, ladder: Ladder, clock: Clock) -> None:
        self._ladder = ladder
        self._clock = clock
        self._forecaster = CandidateForecaster()

    def decide(
        self,
        ctx: RequestContext,
        request: ChatRequest,
        planned: PlannedRoute,
        routing_request: RoutingRequest,
        shortened: Shortened | None = None,
    ) -> AdmissionDecision:
        """Return the form in which the request may go on; `ctx.routing_request` is then its routing request.

        Raises:
            Shed: No form is in time; the error has the reason and a hint at a request that would be admitted.
            TooLongToTrim: A long request has to be trimmed first; call again with it `shortened`.
        """
        admission_request = routing_request.admission_request
        rules = admission_request.lane.rules
        ctx.routing_request = routing_request
        has_target = (
            admission_request.ttft_by is not None
            or admission_request.deadline_at is not None
            or routing_request.tpot_slo_s is not None
        )
        if not has_target and (not admission_request.lane.is_full or rules.on_overload == _SHED_ONLY):
            return AdmissionDecision(request, admission_request)
        now = self._clock()
        forecasts = self._forecaster.look(now, planned, routing_request, request.stream)
        may_trim = not ctx.keeps_whole
        whole = DegradationStep(request, routing_request, (planned,), shortened=shortened, may_trim=may_trim)
        best = forecasts.best
        if best is None:
            best = self._forecaster.coming(now, planned, routing_request, request.stream)
            if best is None:  # none is fit: the router refuses, or finds a fallback
                return AdmissionDecision(request, admission_request)
            forecasts = CandidateForecasts(best, _NOBODY, planned)  # it waits for the start, if that is in time
        if _may_serve(whole, best):
            return self._admit(ctx, whole, forecasts)
        return self._degrade(ctx, now, whole, best)

    def _degrade(
        self, ctx: RequestContext, now: float, whole: DegradationStep, best: CandidateForecast
    ) -> AdmissionDecision:
        """Return the first degraded request that would be in time; `best` is the forecast of the whole one.

        Raises:
            Shed: No form is in time, and the route does not accept a late answer.
        """
        degradation = whole
        steps = whole.routing_request.admission_request.lane.rules.on_overload
        for step in steps:
            if step == "shed":
                raise self._refusal(ctx, now, whole, best)
            lesser = self._ladder.take(step, degradation)
            if lesser is None:
                continue
            degradation = lesser
            forecasts = self._look(now, degradation)
            if degradation.hit is not None or (forecasts.best is not None and _may_serve(degradation, forecasts.best)):
                return self._admit(ctx, degradation, forecasts)
        if misses_deadline(now, whole.routing_request.admission_request, best) or not best.live.limiter.can_wait(
            whole.routing_request.admission_request
        ):
            raise self._refusal(ctx, now, whole, best)
        return self._admit_late(ctx, degradation)

    def _look(self, now: float, degradation: DegradationStep) -> CandidateForecasts:
        """Forecast the routes of the form, in order, up to the first with a candidate in time."""
        best: CandidateForecast | None = None
        late = _NOBODY
        for planned in degradation.routes:
            found = self._forecaster.look(now, planned, degradation.routing_request, degradation.request.stream)
            late |= found.too_late
            if found.best is not None and (best is None or found.best.is_better_than(best)):
                best = found.best
            if best is not None and best.is_in_time:
                return CandidateForecasts(best, late, planned, found.seen)
        return CandidateForecasts(best, late)

    def _admit(
        self, ctx: RequestContext, degradation: DegradationStep, forecasts: CandidateForecasts
    ) -> AdmissionDecision:
        admission_request, best = degradation.routing_request.admission_request, forecasts.best
        if best is not None:
            # A plain answer shows no first token.
            unread = best.price.uncached_tokens if degradation.request.stream else 0
            admission_request = admission_request.with_service(best.service_s, unread, first_token_s=best.made.seconds)
        stand_in = None if forecasts.planned is degradation.routes[0] else forecasts.planned
        return self._admitted(ctx, degradation, admission_request, forecasts.too_late, stand_in, forecasts.seen)

    def _admit_late(self, ctx: RequestContext, degradation: DegradationStep) -> AdmissionDecision:
        """Admit the request late, as its lane prefers; the lane's target no longer counts."""
        return self._admitted(
            ctx,
            degradation,
            msgspec.structs.replace(degradation.routing_request.admission_request, ttft_by=None),
            _NOBODY,
            None,
        )

    def _admitted(
        self,
        ctx: RequestContext,
        degradation: DegradationStep,
        admission_request: AdmissionRequest,
        avoid: frozenset[str],
        stand_in: PlannedRoute | None,
        seen: tuple[Seen, ...] = (),
    ) -> AdmissionDecision:
        ctx.routing_request = degradation.routing_request.with_admission(admission_request)
        ctx.record.degraded = degradation.steps
        ctx.record.trimmed = summed_cuts((*ctx.record.trimmed, *degradation.trimmed))
        return AdmissionDecision(degradation.request, admission_request, avoid, stand_in, degradation.hit, seen)

    def _refusal(self, ctx: RequestContext, now: float, degradation: DegradationStep, best: CandidateForecast) -> Shed:
        routing_request = degradation.routing_request
        if best.is_in_time:  # it would be, but for the queue's length
            return best.live.limiter.no_room(routing_request.admission_request)
        if best.start_s:
            return refusal.still_starting(
                routing_request.admission_request.lane, degradation.routes[0].route.id, best.start_s
            )
        elsewhere = lane_elsewhere(now, ctx.snapshot, ctx.caller, routing_request, best)
        return refusal_of(now, routing_request, best, is_stream=degradation.request.stream, elsewhere=elsewhere)


class AdmissionStage:
    """Stage that prices a request, selects its lane, and calls the gate."""

    __slots__ = ("_admitter", "_embeddings", "_gate", "_pricer", "_reader", "_trims")

    def __init__(
        self,
        *,
        admitter: Admitter,
        reader: RequestReader,
        pricer: Pricer,
        embeddings: PromptEmbedding,
        gate: AdmissionGate,
        trims: TrimStage,
    ) -> None:
        self._admitter = admitter
        self._reader = reader
        self._pricer = pricer
        self._embeddings = embeddings
        self._gate = gate
        self._trims = trims

    async def admit(
        self, ctx: RequestContext, request: ChatRequest, head: ChatHead, admission: Admission, planned: PlannedRoute
    ) -> AdmissionDecision:
        """Price the request, select its lane and decide; a thread trims a long request where that is needed.

        Raises:
            Shed: No form of the request is in time.
        """
        record = ctx.record
        routing_request = self._priced(ctx, request, head, admission)
        record.lane = routing_request.admission_request.lane.id
        session = ctx.snapshot.router.session_of(planned, request, head)
        if planned.reads_prompt:
            vector = (
                await self._embeddings.of(ctx, planned, request)
                if planned.pair_predictors and planned.encoders
                else None
            )
            routing_request = planned.weighed(routing_request, request, record.tenant, vector, session)
            if record.sample is not None and routing_request.verdict is not None:
                note_verdict(record.sample, routing_request.verdict)
        routing_request = ctx.snapshot.router.with_history(routing_request, request, session)
        try:
            return self._gate.decide(ctx, request, planned, routing_request)
        except TooLongToTrim as wanted:
            shorter = await self._trims.trim_more(wanted.request, wanted.rule)
            if shorter is not None:
                await self._reader.outline(shorter.request)
            return self._gate.decide(ctx, request, planned, routing_request, Shortened(shorter))

    def priced(
        self, ctx: RequestContext, request: ChatRequest, head: ChatHead, admission: Admission, planned: PlannedRoute
    ) -> RoutingRequest:
        """Return the price and history of a request that another process has admitted."""
        router, routing_request = ctx.snapshot.router, self._priced(ctx, request, head, admission)
        return router.with_history(routing_request, request, router.session_of(planned, request, head))

    def _priced(
        self, ctx: RequestContext, request: ChatRequest, head: ChatHead, admission: Admission
    ) -> RoutingRequest:
        """Return the price, lane and deadline of a request."""
        record = ctx.record
        price = ctx.price or self._pricer.price(request, tenant=record.tenant, route=record.route)
        admission_request, tpot_slo_s = self._admitter.admission_request(ctx.snapshot, head, admission, price)
        record.ignored_headers = head.ignored
        return RoutingRequest(price, admission_request, tpot_slo_s=tpot_slo_s)


def _may_serve(degradation: DegradationStep, best: CandidateForecast) -> bool:
    """Return whether the form would be in time, with room to wait where it has to."""
    return best.is_in_time and (
        best.wait_s == 0.0 or best.live.limiter.can_wait(degradation.routing_request.admission_request)
    )

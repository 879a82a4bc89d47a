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
from gateway.deployments.price import Pricer
from gateway.errors import Shed
from gateway.limits import refusal
from gateway.limits.lane import LiveLane
from gateway.limits.permit import AdmissionRequest
from gateway.prompt_embedding import PromptEmbedding
from gateway.request_context import RequestContext
from gateway.routing.candidate import Seen
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.sampling import note_verdict
from gateway.timeline import Clock
from gateway.trimming.trim_stage import TrimStage

_NOBODY: Final[frozenset[str]] = frozenset()
_SHED_ONLY: Final = ("shed",)


class AdmissionDecision(msgspec.Struct, frozen=True):
    """A request that may go to a deployment."""

    request: ChatRequest
    """Request to forward, after the cuts of the degradation ladder."""
    claim: AdmissionRequest
    avoid: frozenset[str] = _NOBODY
    """Deployments that would be late; used only when no other is left."""
    stand_in: PlannedRoute | None = None
    """Route that supplies the deployment instead of the request's own."""
    answer: CacheLookup | None = None
    """Stored response that is served instead."""
    seen: tuple[Seen, ...] = ()
    """Candidates as they were forecast here: the first attempt chooses by these, and forecasts none of them again."""

    @property
    def lane(self) -> LiveLane:
        """Return the lane in which the request waits if it has to."""
        return self.claim.lane

    @property
    def deadline_at(self) -> float | None:
        """Monotonic instant after which the client no longer waits for a first byte."""
        return self.claim.deadline_at


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
        ask: RoutingRequest,
        shortened: Shortened | None = None,
    ) -> AdmissionDecision:
        """Return the form in which the request may go on; `ctx.ask` is then its routing request.

        Raises:
            Shed: No form is in time; the error has the reason and a hint at a request that would be admitted.
            TooLongToTrim: A long request has to be trimmed first; call again with it `shortened`.
        """
        claim = ask.claim
        rules = claim.lane.rules
        ctx.ask = ask
        has_target = claim.ttft_by is not None or claim.deadline_at is not None or ask.tpot_slo_s is not None
        if not has_target and (not claim.lane.is_full or rules.on_overload == _SHED_ONLY):
            return AdmissionDecision(request, claim)
        now = self._clock()
        looks = self._forecaster.look(now, planned, ask, request.stream)
        form, best = DegradationStep(request, ask, (planned,), shortened=shortened), looks.best
        if best is None:
            best = self._forecaster.coming(now, planned, ask, request.stream)
            if best is None:  # none is fit: the router refuses, or finds a fallback
                return AdmissionDecision(request, claim)
            looks = CandidateForecasts(best, _NOBODY, planned)  # it waits for the start, if that is in time
        if _may_go(form, best):
            return self._admit(ctx, form, looks)
        return self._degrade(ctx, now, form, best)

    def _degrade(
        self, ctx: RequestContext, now: float, whole: DegradationStep, best: CandidateForecast
    ) -> AdmissionDecision:
        """Return the first lesser form that would be in time; `best` is the forecast of the whole form.

        Raises:
            Shed: No form is in time, and the route does not accept a late answer.
        """
        form = whole
        steps = whole.ask.claim.lane.rules.on_overload
        for step in steps:
            if step == "shed":
                raise self._refusal(ctx, now, whole, best)
            lesser = self._ladder.take(step, form)
            if lesser is None:
                continue
            form = lesser
            looks = self._look(now, form)
            if form.answer is not None or (looks.best is not None and _may_go(form, looks.best)):
                return self._admit(ctx, form, looks)
        if misses_deadline(now, whole.ask.claim, best) or not best.live.limiter.can_wait(whole.ask.claim):
            raise self._refusal(ctx, now, whole, best)
        return self._admit_late(ctx, form)

    def _look(self, now: float, form: DegradationStep) -> CandidateForecasts:
        """Forecast the routes of the form, in order, up to the first with a candidate in time."""
        best: CandidateForecast | None = None
        late = _NOBODY
        for planned in form.routes:
            found = self._forecaster.look(now, planned, form.ask, form.request.stream)
            late |= found.too_late
            if found.best is not None and (best is None or found.best.is_better_than(best)):
                best = found.best
            if best is not None and best.is_in_time:
                return CandidateForecasts(best, late, planned, found.seen)
        return CandidateForecasts(best, late)

    def _admit(self, ctx: RequestContext, form: DegradationStep, looks: CandidateForecasts) -> AdmissionDecision:
        claim, best = form.ask.claim, looks.best
        if best is not None:
            unread = best.price.uncached_tokens if form.request.stream else 0  # a plain answer shows no first token
            claim = claim.with_service(best.service_s, unread)
        stand_in = None if looks.planned is form.routes[0] else looks.planned
        return self._admitted(ctx, form, claim, looks.too_late, stand_in, looks.seen)

    def _admit_late(self, ctx: RequestContext, form: DegradationStep) -> AdmissionDecision:
        """Admit the request late, as its lane prefers; the lane's target no longer counts."""
        return self._admitted(ctx, form, msgspec.structs.replace(form.ask.claim, ttft_by=None), _NOBODY, None)

    def _admitted(
        self,
        ctx: RequestContext,
        form: DegradationStep,
        claim: AdmissionRequest,
        avoid: frozenset[str],
        stand_in: PlannedRoute | None,
        seen: tuple[Seen, ...] = (),
    ) -> AdmissionDecision:
        ctx.ask = form.ask.with_claim(claim)
        ctx.record.degraded = form.steps
        return AdmissionDecision(form.request, claim, avoid, stand_in, form.answer, seen)

    def _refusal(self, ctx: RequestContext, now: float, form: DegradationStep, best: CandidateForecast) -> Shed:
        ask = form.ask
        if best.is_in_time:  # it would be, but for the queue's length
            return best.live.limiter.no_room(ask.claim)
        if best.start_s:
            return refusal.still_starting(ask.claim.lane, form.routes[0].route.id, best.start_s)
        elsewhere = lane_elsewhere(now, ctx.snapshot, ctx.caller, ask, best)
        return refusal_of(now, ask, best, is_stream=form.request.stream, elsewhere=elsewhere)


class AdmissionStage:
    """Stage that prices a request, claims its lane, and calls the gate."""

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
        """Price the request, claim its lane and decide; a thread trims a long request where that is needed.

        Raises:
            Shed: No form of the request is in time.
        """
        record = ctx.record
        price = ctx.price or self._pricer.price(request, tenant=record.tenant, route=record.route)
        claim, tpot_slo_s = self._admitter.claim(ctx.snapshot, head, admission, price)
        record.lane = claim.lane.id
        ask = RoutingRequest(price, claim, tpot_slo_s=tpot_slo_s)
        if planned.looks_at_prompt:
            vector = await self._embeddings.of(ctx, planned, request) if planned.judges and planned.encoders else None
            ask = planned.weighed(ask, request, record.tenant, vector)
            if record.sample is not None and ask.verdict is not None:
                note_verdict(record.sample, ask.verdict)
        ask = ctx.snapshot.router.with_history(ask, request)
        record.ignored_headers = head.ignored
        try:
            return self._gate.decide(ctx, request, planned, ask)
        except TooLongToTrim as wanted:
            shorter = await self._trims.trim_more(wanted.request, wanted.rule)
            if shorter is not None:
                await self._reader.outline(shorter)
            return self._gate.decide(ctx, request, planned, ask, Shortened(shorter))


def _may_go(form: DegradationStep, best: CandidateForecast) -> bool:
    """Return whether the form would be in time, with room to wait where it has to."""
    return best.is_in_time and (best.wait_s == 0.0 or best.live.limiter.can_wait(form.ask.claim))

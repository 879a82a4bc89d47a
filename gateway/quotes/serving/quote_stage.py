"""QuoteStage: requests of a policy with quotes are measured, and those that send a quote back get what it reserved."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.admission.admitter import Admission
from gateway.admission.gate import AdmissionDecision
from gateway.admission.quotas.quotas import Quotas
from gateway.chat.headers import ChatHead
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.chat.strict_json import LONG_BYTES
from gateway.quotes.quote_token import QuoteSigner, QuoteToken
from gateway.quotes.reserved_permit import to_hold
from gateway.quotes.serving.handed_quotes import HandedAnswer, HandedForm, HandedPermit, QuoteOrder, QuotesElsewhere
from gateway.quotes.serving.open_quotes import OpenQuote, OpenQuotes
from gateway.quotes.ttft_watch import QuotedBound, TtftWatch
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.routing_request import RoutingRequest
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.records.record import QuoteResult, QuoteUse, QuoteUseKind
from gateway.timeline import Clock, Outcome
from gateway.util.workers import Workers
from routing_policies.estimation.estimators import Price
from routing_policies.policy.document import Quotes

NANO_PER_UNIT: Final = 1e9
_NO_FAULT: Final = frozenset({Outcome.CANCELLED, Outcome.REJECTED})
"""Outcomes that the client chose, or its own limits or request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteServices:
    """Objects that giving quotes and redeeming them share."""

    signer: QuoteSigner
    open_quotes: OpenQuotes
    quotas: Quotas
    holder: str
    """Name of this process among all that share the store."""
    metrics: GatewayMetrics
    clock: Clock
    wall: Callable[[], float]
    workers: Workers
    parser: ChatRequestParser
    elsewhere: QuotesElsewhere | None = None
    """Quotes of the gateway's other processes; None for its only one."""


class QuoteStage:
    """Stage of requests under a policy with quotes: `begin`, then `admit` with an open quote, then `conclude`."""

    __slots__ = ("_clock", "_metrics", "_quotas", "_services")

    def __init__(self, services: QuoteServices) -> None:
        self._services = services
        self._quotas = services.quotas
        self._metrics = services.metrics
        self._clock = services.clock

    async def begin(
        self, ctx: RequestContext, head: ChatHead, request: ChatRequest, planned: PlannedRoute, rules: Quotes
    ) -> OpenQuote | None:
        """Begin to measure a request; return the open quote that it sends back, None without a reserved permit.

        A quote that does not count never fails a request: it is served as one without, and a header states why.
        """
        watch = ctx.watch = TtftWatch(ctx.record.timeline.started_at, rules.coverage)
        if head.quote is None:
            return None
        token = await self._services.signer.read(head.quote)
        use: QuoteUseKind = "invalid"
        quote: OpenQuote | None = None
        if token is not None and token.tenant == ctx.record.tenant:
            use, quote = await self._use(ctx, request, planned, token)
        counts = use in ("redeemed", "unreserved")
        ctx.record.quote = _described(use, token if counts else None)
        self._metrics.quote_uses.labels(use).inc()
        if counts and token is not None and token.bound_s is not None:
            live = ctx.snapshot.deployments.get(token.deployment)
            quoted = QuotedBound(bound_s=token.bound_s, coverage=token.coverage, forecast_s=token.forecast_s)
            watch.redeem(quoted, None if live is None else live.ttft_bounds)
        if quote is not None:
            watch.reserved = quote.reserved
        return quote

    async def _use(
        self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, token: QuoteToken
    ) -> tuple[QuoteUseKind, OpenQuote | None]:
        left_s = token.expires_at - self._services.wall()
        if left_s <= 0.0:
            return "expired", None
        if await body_digest_of(request, self._services.workers) != token.body_digest:
            return "other-body", None
        is_new = self._services.open_quotes.use_once(token.id, self._clock() + left_s)
        if not is_new or not await self._services.signer.is_first_use(token, left_s):
            return "used", None
        if token.holder != self._services.holder:
            quote = await self._from_elsewhere(ctx, planned, token)
        else:
            quote = self._services.open_quotes.take(token.id)
            if quote is not None and (quote.policy, quote.route) != (ctx.snapshot.revision, ctx.record.route):
                quote.reserved.release()
                quote = None
        return ("unreserved", None) if quote is None else ("redeemed", quote)

    async def _from_elsewhere(self, ctx: RequestContext, planned: PlannedRoute, token: QuoteToken) -> OpenQuote | None:
        """Return a quote that another process of this machine holds; None without one."""
        elsewhere = self._services.elsewhere
        if elsewhere is None:
            return None
        order = QuoteOrder(token.id, ctx.snapshot.revision, ctx.record.route)
        found = await elsewhere.fetch(token.holder, order)
        if found is None:
            return None
        form, answer = found
        try:
            quote = await self._adopted(ctx, planned, token, form, answer)
        except BaseException:  # cancellation too: nobody would let the permit go
            answer.close()
            raise
        if quote is None:
            answer.close()
        return quote

    async def _adopted(
        self, ctx: RequestContext, planned: PlannedRoute, token: QuoteToken, form: HandedForm, answer: HandedAnswer
    ) -> OpenQuote | None:
        """Return the quote of a form; None where this process lacks what it names, because a deployment just left."""
        live, lane = ctx.snapshot.deployments.get(form.deployment), ctx.snapshot.lanes.get(form.lane)
        stand_in = next((other for other in planned.fallbacks if other.route.id == form.stand_in), None)
        if live is None or lane is None or (stand_in is None and form.stand_in is not None):
            return None
        admission_request = form.admission_request(lane, token.tenant)
        parser, body = self._services.parser, form.body
        return OpenQuote(
            id=token.id,
            tenant=token.tenant,
            policy=ctx.snapshot.revision,
            route=ctx.record.route,
            admission_request=admission_request,
            request=None if body is None else await self._services.workers.run(parser.parse, body),
            avoid=frozenset(form.avoid),
            stand_in=stand_in,
            routing_request=None,
            degraded=form.degraded,
            trimmed=form.trimmed,
            reserved=HandedPermit(live, form.decision, to_hold(admission_request), answer),
            expires_at=self._clock(),
        )

    def admit(
        self,
        ctx: RequestContext,
        request: ChatRequest,
        admission: Admission,
        quote: OpenQuote,
        routing_request: RoutingRequest,
    ) -> AdmissionDecision:
        """Return the decision that the quote was given by, for the request as it is now."""
        record = ctx.record
        admission_request = msgspec.structs.replace(
            quote.admission_request,
            deadline_at=admission.deadline_at,
            ttft_by=None,
            arrived_at=admission.received_at,
        )
        record.lane = admission_request.lane.id
        record.degraded, record.trimmed = quote.degraded, quote.trimmed
        ctx.routing_request = routing_request.with_admission(admission_request)
        return AdmissionDecision(
            quote.request or request,
            admission_request,
            avoid=quote.avoid,
            stand_in=quote.stand_in,
            reserved=quote.reserved,
        )

    def conclude(self, ctx: RequestContext, watch: TtftWatch) -> None:
        """Settle the bounds of a request that is over; a permit that it did not use returns."""
        record = ctx.record
        if watch.reserved is not None:
            watch.reserved.release()
        first_at = record.timeline.first_token_at
        if watch.ttft_s is None and first_at is not None:  # a cached response: no deployment's first token
            watch.ttft_s = first_at - record.timeline.started_at
        result: QuoteResult = "unknown"
        if watch.ttft_s is not None or record.outcome is not Outcome.COMPLETED:  # not every plain answer tells it
            result = watch.end(self._clock(), is_excused=record.outcome in _NO_FAULT)
        use = record.quote
        if use is None or use.bound_ms is None:
            return
        self._metrics.quoted_bounds.labels("first_token", result).inc()
        price_result = self._price_result(ctx, use)
        if price_result is not None:
            self._metrics.quoted_bounds.labels("price", price_result).inc()
        record.quote = msgspec.structs.replace(use, result=result, price_result=price_result)

    def _price_result(self, ctx: RequestContext, use: QuoteUse) -> QuoteResult | None:
        """Return whether the answer cost no more than quoted; None where no price was quoted."""
        record = ctx.record
        if use.price is None:
            return None
        if record.outcome is Outcome.CACHED:
            return "met"
        if record.usage is None:
            return "unknown"
        nano = self._nano(record.deployment, record.usage.prompt_tokens, record.usage.completion_tokens)
        if (left := record.handed_over) is not None:
            nano += self._nano(left.deployment, left.usage.prompt_tokens, left.usage.completion_tokens)
        return "met" if nano <= use.price * NANO_PER_UNIT + 1 else "missed"

    def _nano(self, deployment: str, prompt_tokens: int, completion_tokens: int) -> int:
        return self._quotas.price_of(Price(prompt_tokens, prompt_tokens, completion_tokens), (deployment,))


async def body_digest_of(request: ChatRequest, workers: Workers) -> bytes:
    """Return the digest of a request's body; a thread computes that of a long one."""
    if len(request.raw) > LONG_BYTES:
        return await workers.run(_digest, request.raw)
    return _digest(request.raw)


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def _described(use: QuoteUseKind, token: QuoteToken | None) -> QuoteUse:
    if token is None or token.bound_s is None:
        return QuoteUse(use=use)
    price = None if token.price_nano is None else token.price_nano / NANO_PER_UNIT
    return QuoteUse(use=use, bound_ms=round(token.bound_s * 1000, 3), coverage=token.coverage, price=price)

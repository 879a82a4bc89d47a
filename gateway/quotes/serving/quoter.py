"""Quoter: the quote of an admitted request, with its bounds, its price and its reserved permit."""

from __future__ import annotations

import secrets
from typing import Final, Literal

import msgspec

from gateway.admission.gate import AdmissionDecision
from gateway.chat.request import ChatRequest
from gateway.deployments.live import LiveDeployment
from gateway.errors import Shed
from gateway.quotes.quote_token import QuoteToken
from gateway.quotes.reserved_permit import ReservedPermit, to_hold
from gateway.quotes.serving.open_quotes import OpenQuote
from gateway.quotes.serving.quote_stage import NANO_PER_UNIT, QuoteServices, body_digest_of
from gateway.quotes.ttft_watch import forecast_at, ttft_bounds_of
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.routing_request import PROMPT_MARGIN, RoutingRequest
from routing_policies.decision import Decision
from routing_policies.estimation.coverage import ttft_bound_of
from routing_policies.estimation.estimators import Price
from routing_policies.policy.document import Quotes

_ID_BYTES: Final = 12
FROM_STALE_CACHE: Final = "cache"
_NONE_TRIED: Final[frozenset[str]] = frozenset()


class QuotedPrice(msgspec.Struct, frozen=True, kw_only=True):
    """Bound of a request's price."""

    amount: float
    """In the currency of `cost_per_mtok`."""
    prompt_tokens: int
    """Tokens of the prompt that the bound assumes: the estimate and a margin."""
    max_completion_tokens: int


class ShownQuote(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `POST /v1/quote` for a request that would be admitted."""

    object: Literal["quote"] = "quote"
    id: str
    admitted: Literal[True] = True
    model: str
    route: str
    deployment: str
    """Deployment that would serve the request; `cache` for an expired entry of the response cache."""
    degradation: str | None
    """Degradation steps, as `x-penstock-degraded` names them; None without one."""
    ttft_ms: float | None
    """Bound of the time from receipt to the first token.

    None while too few answers of the deployment are known for the coverage.
    """
    coverage: float
    """Share of such requests whose first token comes within `ttft_ms`."""
    forecast_ms: float
    """Forecast of the same time, without a margin."""
    would_queue_ms: float
    """Part of the forecast that is a wait for a permit."""
    price: QuotedPrice | None
    """None where the deployment has no price, or nothing bounds the length of the answer."""
    reserved: bool
    """True if a permit, or a place in its queue, is held for the request."""
    expires_in_s: float
    """Time within which `quote` counts."""
    quote: str | None
    """Token to send back in `x-penstock-quote`; None for an answer from the cache, which nothing has to reserve."""


class RefusedQuote(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `POST /v1/quote` for a request that would be refused for load."""

    object: Literal["quote"] = "quote"
    id: str
    admitted: Literal[False] = False
    model: str
    route: str
    reason: str
    """Reason of the refusal, as its header `x-penstock-shed-reason` states it."""
    message: str
    hint: str
    lane: str
    queue_depth: int
    predicted_wait_ms: int
    retry_after_s: float


class Quoter:
    """Gives the quotes of requests that the gate has decided about."""

    __slots__ = ("_services",)

    def __init__(self, services: QuoteServices) -> None:
        self._services = services

    async def quote(
        self,
        ctx: RequestContext,
        request: ChatRequest,
        admitted: AdmissionDecision,
        planned: PlannedRoute,
        rules: Quotes,
        coverage: float,
    ) -> ShownQuote:
        """Return the quote of an admitted request, and reserve its permit.

        Args:
            ctx: Context of the quote's own request.
            request: The request as the client sent it; `admitted` has it as it would be forwarded.
            admitted: Decision of the gate.
            planned: Route of the request.
            rules: The policy's rules for quotes.
            coverage: Coverage to state.

        Raises:
            Shed: No deployment is fit.
        """
        services, routing_request = self._services, ctx.routing_request
        assert routing_request is not None, "the gate sets it"
        digest = await body_digest_of(request, services.workers)
        live, decision = admitted.pick(ctx.snapshot.router, planned, _NONE_TRIED, routing_request)
        # From here to the reservation nothing waits, so the forecast is that of the permit which is taken.
        now, received_at = services.clock(), ctx.record.timeline.started_at
        price = routing_request.price_at(live.id)
        left_s, wait_s = forecast_at(now, live, price, admitted.admission_request)
        forecast_s = now - received_at + left_s
        limit = ttft_bounds_of(live, rules.coverage).limit(coverage)
        bound_s = None if limit is None else ttft_bound_of(forecast_s, limit)
        quote_id = _new_id()
        hold_s = rules.hold_ms / 1000
        is_reserved = services.open_quotes.may_hold(ctx.record.tenant, live, rules.max_held)
        if is_reserved:
            self._reserve(ctx, quote_id, admitted, live, decision, routing_request, now + hold_s)
        priced, nano = self._priced(ctx, admitted.request, live, planned)
        token = QuoteToken(
            id=quote_id,
            holder=services.holder,
            tenant=ctx.record.tenant,
            body_digest=digest,
            deployment=live.id,
            expires_at=services.wall() + hold_s,
            forecast_s=forecast_s,
            bound_s=bound_s,
            coverage=coverage,
            price_nano=nano,
        )
        services.metrics.quotes.labels("reserved" if is_reserved else "not_reserved").inc()
        return ShownQuote(
            id=quote_id,
            model=request.model,
            route=planned.route.id,
            deployment=live.id,
            degradation=", ".join(ctx.record.degraded) or None,
            ttft_ms=None if bound_s is None else _ms(bound_s),
            coverage=coverage,
            forecast_ms=_ms(forecast_s),
            would_queue_ms=_ms(wait_s),
            price=priced,
            reserved=is_reserved,
            expires_in_s=hold_s,
            quote=await services.signer.sign(token),
        )

    def from_stale_cache(self, ctx: RequestContext, request: ChatRequest, coverage: float) -> ShownQuote:
        """Return the quote of a request that an expired cache entry would answer: the lane's step `stale_cache`."""
        self._services.metrics.quotes.labels("not_reserved").inc()
        return ShownQuote(
            id=_new_id(),
            model=request.model,
            route=ctx.record.route,
            deployment=FROM_STALE_CACHE,
            degradation=", ".join(ctx.record.degraded) or None,
            ttft_ms=None,
            coverage=coverage,
            forecast_ms=_ms(self._services.clock() - ctx.record.timeline.started_at),
            would_queue_ms=0.0,
            price=None,
            reserved=False,
            expires_in_s=0.0,
            quote=None,
        )

    def refused(self, ctx: RequestContext, request: ChatRequest, error: Shed) -> RefusedQuote:
        """Return the quote of a request that would be refused for load."""
        self._services.metrics.quotes.labels("refused").inc()
        about = error.degraded
        return RefusedQuote(
            id=_new_id(),
            model=request.model,
            route=ctx.record.route,
            reason=error.reason,
            message=error.message,
            hint=about.hint,
            lane=error.lane,
            queue_depth=about.queue_depth,
            predicted_wait_ms=about.predicted_wait_ms,
            retry_after_s=error.retry_after_s,
        )

    def _reserve(
        self,
        ctx: RequestContext,
        quote_id: str,
        admitted: AdmissionDecision,
        live: LiveDeployment,
        decision: Decision,
        routing_request: RoutingRequest,
        expires_at: float,
    ) -> None:
        """Hold a permit, or a place in the queue, until the quote expires."""
        record = ctx.record
        quote = OpenQuote(
            id=quote_id,
            tenant=record.tenant,
            policy=record.policy,
            route=record.route,
            admission_request=admitted.admission_request,
            request=admitted.request if record.degraded else None,
            avoid=admitted.avoid,
            stand_in=admitted.stand_in,
            routing_request=routing_request,
            degraded=record.degraded,
            trimmed=record.trimmed,
            reserved=ReservedPermit(live, decision, to_hold(admitted.admission_request)),
            expires_at=expires_at,
        )
        self._services.open_quotes.add(quote)

    def _priced(
        self, ctx: RequestContext, request: ChatRequest, live: LiveDeployment, planned: PlannedRoute
    ) -> tuple[QuotedPrice | None, int | None]:
        """Return the bound of the price, and the same in billionths; None where there is none.

        A cascade may pay for two answers, so it counts the dearest candidate beside the first.
        """
        assert ctx.routing_request is not None, "the gate sets it"
        estimate = ctx.routing_request.price.prompt_tokens
        prompt_tokens = min(round(estimate * PROMPT_MARGIN), max(request.text_bytes, estimate))
        most = request.max_output_tokens
        if most is None and live.context_tokens is not None:
            most = max(live.context_tokens - estimate, 1)
        has_price = any(one.id == live.id and one.cost_per_mtok is not None for one in ctx.snapshot.policy.deployments)
        if most is None or not has_price:
            return None, None
        completion_tokens = most * request.num_choices
        price = Price(prompt_tokens, prompt_tokens, completion_tokens)
        nano = self._services.quotas.price_of(price, (live.id,))
        if planned.route.select.policy == "cascade":
            nano += self._services.quotas.price_of(price, planned.deployment_ids)
        shown = QuotedPrice(
            amount=nano / NANO_PER_UNIT, prompt_tokens=prompt_tokens, max_completion_tokens=completion_tokens
        )
        return shown, nano


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _new_id() -> str:
    return f"quote_{secrets.token_hex(_ID_BYTES)}"

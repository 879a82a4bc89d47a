"""Ladder: degradation steps of a request, tried in the order of its lane while the fuller one would come too late."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from gateway.cache.exact.cache_lookup import CacheLookup
from gateway.cache.exact.exact_cache import ExactCache
from gateway.chat.operation import CHAT
from gateway.chat.request import ChatRequest
from gateway.deployments.price import Pricer
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.routing_request import RoutingRequest
from gateway.trimming.trimmer import DEFAULT_BYTES_PER_TOKEN, MAX_TRIMMED_HERE_BYTES, Trimmed, Trimmer
from routing_policies.policy.document import Trim
from routing_policies.policy.values import OverloadStep

DegradedStep = Literal["trimmed", "small-model", "max-tokens", "stale-cache"]

HEADER_NAMES: Final[dict[OverloadStep, DegradedStep]] = {
    "trim": "trimmed",
    "small_model": "small-model",
    "max_tokens": "max-tokens",
    "stale_cache": "stale-cache",
}
"""Name of each step of a policy in `x-penstock-degraded` and in the metric."""


class TooLongToTrim(Exception):
    """A decision needs this request trimmed by this rule, which takes longer than the event loop may be blocked."""

    def __init__(self, request: ChatRequest, rule: Trim) -> None:
        super().__init__("trim it on a thread and decide again")
        self.request = request
        self.rule = rule


class Shortened(msgspec.Struct, frozen=True):
    """The request of a TooLongToTrim as a thread has cut it; None where there was nothing left to cut."""

    trimmed: Trimmed | None


class DegradationStep(msgspec.Struct, frozen=True):
    """A request in a form that may be admitted."""

    request: ChatRequest
    routing_request: RoutingRequest
    routes: tuple[PlannedRoute, ...]
    """Routes that supply a deployment, in order: the route itself, then its stand-ins."""
    hit: CacheLookup | None = None
    """Stored response that is served instead of a deployment's answer."""
    steps: tuple[DegradedStep, ...] = ()
    shortened: Shortened | None = None
    """The step `trim` of a long request, taken on a thread; None before that."""
    may_trim: bool = True
    """False where the client has turned trimming off, and the route lets it."""
    trimmed: tuple[tuple[str, int], ...] = ()
    """Tokens that the step `trim` has cut, by strategy."""


class Ladder:
    """Ladder of steps, taken one at a time; a step that changes nothing is no step."""

    __slots__ = ("_cache", "_pricer", "_trimmer")

    def __init__(self, *, trimmer: Trimmer, cache: ExactCache, pricer: Pricer) -> None:
        self._trimmer = trimmer
        self._cache = cache
        self._pricer = pricer

    def take(self, step: OverloadStep, degradation: DegradationStep) -> DegradationStep | None:
        """Return the degraded request; None when this step cannot help.

        Raises:
            TooLongToTrim: A thread has to trim the request first.
        """
        if step == "trim":
            return self._trim(degradation)
        if step == "small_model":
            return self._small_model(degradation)
        if step == "max_tokens":
            return self._max_tokens(degradation)
        if step == "stale_cache":
            return self._stale_cache(degradation)
        return None

    def _trim(self, degradation: DegradationStep) -> DegradationStep | None:
        if degradation.request.operation is not CHAT or not degradation.may_trim:
            return None
        rule = degradation.routes[0].route.trim
        if degradation.shortened is not None:
            shorter = degradation.shortened.trimmed
        elif degradation.request.text_bytes > MAX_TRIMMED_HERE_BYTES:
            raise TooLongToTrim(degradation.request, rule)
        else:
            shorter = self._trimmer.trim_more(degradation.request, rule)
        if shorter is None:
            return None
        cheaper = self._repriced(degradation, shorter.request, "trim")
        cut = shorter.cut_tokens(DEFAULT_BYTES_PER_TOKEN)
        return None if cheaper is None else msgspec.structs.replace(cheaper, trimmed=cut)

    def _small_model(self, degradation: DegradationStep) -> DegradationStep | None:
        """Return the form on the route's fallbacks: they replace lost candidates, and smaller ones answer sooner."""
        fallbacks = degradation.routes[0].fallbacks
        if not fallbacks or len(degradation.routes) > 1:
            return None
        return _stepped(degradation, "small_model", routes=(degradation.routes[0], *fallbacks))

    def _max_tokens(self, degradation: DegradationStep) -> DegradationStep | None:
        if not degradation.request.operation.generates:
            return None
        most = degradation.routing_request.admission_request.lane.rules.degraded_max_tokens
        max_tokens = degradation.request.max_output_tokens
        if max_tokens is not None and max_tokens <= most:
            return None
        return self._repriced(degradation, degradation.request.with_max_tokens(most), "max_tokens")

    def _stale_cache(self, degradation: DegradationStep) -> DegradationStep | None:
        found = self._cache.stale(
            degradation.request, degradation.routes[0].wanted(degradation.routing_request.admission_request.tenant)
        )
        return None if found is None or found.answer is None else _stepped(degradation, "stale_cache", hit=found)

    def _repriced(
        self, degradation: DegradationStep, request: ChatRequest, step: OverloadStep
    ) -> DegradationStep | None:
        """Return the form with the other request at its own price; None when that is no less."""
        routing_request = degradation.routing_request
        price = self._pricer.price(
            request, tenant=routing_request.admission_request.tenant, route=degradation.routes[0].route.id
        )
        if price.work_tokens >= routing_request.price.work_tokens:
            return None
        admission_request = msgspec.structs.replace(routing_request.admission_request, tokens=price.work_tokens)
        return _stepped(
            degradation,
            step,
            request=request,
            routing_request=msgspec.structs.replace(routing_request, price=price, admission_request=admission_request),
        )


def _stepped(degradation: DegradationStep, step: OverloadStep, **changes: object) -> DegradationStep:
    return msgspec.structs.replace(degradation, steps=(*degradation.steps, HEADER_NAMES[step]), **changes)

"""Pricer: a request's price in tokens from its bytes, tenant and route, learned from reported usage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from gateway.chat.request import ChatRequest
from gateway.telemetry.records.record import Usage
from routing_policies.estimation.estimators import BytesPerToken, OutputEstimate, Price

E = TypeVar("E", BytesPerToken, OutputEstimate)

MAX_KEYS: Final = 4096
"""Number of pairs of tenant and model, or of tenant and route; beyond it the oldest is evicted."""


class Pricer:
    """Estimator of requests' prices; `settle` with the reported usage improves the next prices."""

    __slots__ = ("_known", "_outputs", "_ratios")

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, str], BytesPerToken] = {}
        self._outputs: dict[tuple[str, str], OutputEstimate] = {}
        self._known: dict[tuple[str, str, str], tuple[BytesPerToken, OutputEstimate]] = {}
        """Both estimates by tenant, model and route, so a request costs one lookup."""

    def price(self, request: ChatRequest, *, tenant: str, route: str) -> Price:
        """Return the expected price of a request, with no token taken as cached."""
        ratio, output = self._known.get((tenant, request.model, route)) or self._learners(tenant, request.model, route)
        prompt_tokens = ratio.tokens(request.text_bytes)
        if not request.operation.generates:
            return Price(prompt_tokens, prompt_tokens, 0)
        return Price(prompt_tokens, prompt_tokens, output.mean_tokens(request.max_output_tokens) * request.num_choices)

    def bytes_per_token(self, request: ChatRequest, *, tenant: str) -> float:
        """Return the bytes per token learned from the tenant's requests to this model."""
        num_bytes = request.text_bytes
        tokens = self._ratio(tenant, request.model).tokens(num_bytes)
        return max(1.0, num_bytes / max(1, tokens))

    def settle(self, request: ChatRequest, usage: Usage, *, tenant: str, route: str) -> None:
        """Learn from the usage that the engine reported."""
        ratio, output = self._known.get((tenant, request.model, route)) or self._learners(tenant, request.model, route)
        ratio.observe(request.text_bytes, usage.prompt_tokens)
        if request.operation.generates:
            output.observe(usage.completion_tokens / request.num_choices)

    def _learners(self, tenant: str, model: str, route: str) -> tuple[BytesPerToken, OutputEstimate]:
        ratio, output = self._ratio(tenant, model), self._cached(self._outputs, (tenant, route), OutputEstimate)
        if len(self._known) >= MAX_KEYS:
            self._known.clear()
        found = self._known[tenant, model, route] = (ratio, output)
        return found

    def _ratio(self, tenant: str, model: str) -> BytesPerToken:
        return self._cached(self._ratios, (tenant, model), BytesPerToken)

    def _cached(self, known: dict[tuple[str, str], E], key: tuple[str, str], make: Callable[[], E]) -> E:
        found = known.get(key)
        if found is None:
            if len(known) >= MAX_KEYS:
                del known[next(iter(known))]
                self._known.clear()  # it may still reference the evicted entry
            found = known[key] = make()
        return found

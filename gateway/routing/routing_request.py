"""RoutingRequest: the facts of one request that the router uses."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway.deployments.affinity import Prefix
from gateway.limits.permit import AdmissionRequest
from routing_policies.estimation.estimators import Price
from routing_policies.quality.pairs import QualityPrediction


class RoutingRequest(msgspec.Struct, frozen=True):
    """One request, as far as a choice among deployments depends on it; see `Router.with_history`."""

    price: Price
    """Price of the request without any cached tokens."""
    admission_request: AdmissionRequest
    held_tokens: Mapping[str, int] = {}
    """Tokens of the prompt that each deployment probably has in its KV cache; only those that have any."""
    prefix: Prefix = ()
    session: int | None = None
    last_deployment: str | None = None
    """Deployment that served the session's last request."""
    tpot_slo_s: float | None = None
    """Longest time per output token that the request accepts, in seconds."""
    key: int | None = None
    """Identity of the conversation or tenant, for the policies that route by it."""
    verdict: QualityPrediction | None = None
    """Predicted quality of the candidates' answers, where the route predicts it."""

    def with_admission(self, admission_request: AdmissionRequest) -> RoutingRequest:
        """Return a copy with another admission request."""
        return RoutingRequest(
            self.price,
            admission_request,
            self.held_tokens,
            self.prefix,
            self.session,
            self.last_deployment,
            self.tpot_slo_s,
            self.key,
            self.verdict,
        )

    def price_at(self, deployment: str) -> Price:
        """Return the price at a deployment: lower where the prompt's beginning is cached."""
        price, held_tokens = self.price, self.held_tokens
        held = held_tokens.get(deployment) if held_tokens else None
        if not held:
            return price
        left = price.prompt_tokens - held
        return Price(price.prompt_tokens, left if left > 1 else 1, price.output_tokens)

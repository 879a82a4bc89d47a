"""RoutingRequest: the facts of one request that the router uses, and the seed of its random choices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from gateway.chat.operation import CHAT
from gateway.chat.request import ChatRequest
from gateway.deployments.affinity import Prefix
from gateway.deployments.live import LiveDeployment
from gateway.limits.permit import AdmissionRequest
from gateway.routing.facts import RequestFacts
from routing_policies.estimation.estimators import Price
from routing_policies.quality.pairs import QualityPrediction

PROMPT_MARGIN: Final = 1.5
"""Factor by which the estimated tokens of a prompt may be too low."""


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


class ExplorationSeed(NamedTuple):
    """Seed of a request's draws, and its needs that no filter of a route checks."""

    request_id: str
    has_images: bool

    def fits(self, live: LiveDeployment, routing_request: RoutingRequest) -> bool:
        """Return whether a deployment surely holds and reads the request; unknown limits count as none."""
        price, context, kinds = routing_request.price, live.context_tokens, live.input_modalities
        holds = context is None or price.prompt_tokens * PROMPT_MARGIN + price.output_tokens <= context
        return holds and (not self.has_images or kinds is None or "image" in kinds)


def exploration_seed(request_id: str, request: ChatRequest) -> ExplorationSeed | None:
    """Return the seed of a chat request; None for other operations, which are never explored."""
    if request.operation is not CHAT:
        return None
    return ExplorationSeed(request_id, RequestFacts(request).fact("has_images") is True)

"""LiveCandidate: one deployment as one route may choose it, and its view for a request."""

from __future__ import annotations

from gateway.deployments.flight import TtftForecast
from gateway.deployments.live import LiveDeployment
from gateway.routing.routing_request import RoutingRequest
from routing_policies.estimation.estimators import Price, cost_of
from routing_policies.policy.deployment import Deployment
from routing_policies.views import DeploymentView


class LiveCandidate:
    """A candidate of a route: its rule in the policy beside its live state."""

    __slots__ = ("_rates", "_rule", "live", "weight")

    def __init__(self, rule: Deployment, live: LiveDeployment, weight: float, *, is_priced: bool = True) -> None:
        """Join a rule with its live state; `is_priced` is True if the choice may depend on a request's cost."""
        self._rule = rule
        self._rates = rule.cost_per_mtok if is_priced else None
        self.live = live
        self.weight = weight

    def plain_view(self, *, is_ejected: bool = False, distance: int = 0) -> DeploymentView:
        """Return a view of the candidate without forecasts, at the given place of its zone."""
        live, rule = self.live, self._rule
        return DeploymentView(
            id=live.id,
            model=live.model,
            is_ready=live.is_ready,
            is_ejected=is_ejected,
            in_flight=live.limiter.in_flight,
            max_in_flight=live.limiter.limit,
            weight=self.weight,
            quality=rule.quality,
            zone=rule.zone,
            distance=distance,
        )

    def view(self, now: float, routing_request: RoutingRequest, *, is_ejected: bool = False) -> DeploymentView:
        """Return a view of the candidate with its forecast latency and cost for this request."""
        live = self.live
        price = routing_request.price_at(live.id)
        wait_s = live.limiter.wait_s(now, routing_request.admission_request)
        made = live.forecast.look(now, price.uncached_tokens, routing_request.admission_request.lane.engine_lane)
        return self.view_of(routing_request, price, wait_s, made, is_ejected=is_ejected)

    def view_of(
        self,
        routing_request: RoutingRequest,
        price: Price,
        wait_s: float,
        made: TtftForecast,
        *,
        is_ejected: bool = False,
    ) -> DeploymentView:
        """Return a view of the candidate with its latency and cost for this request, from forecasts made just now."""
        live, rule, rates, verdict = self.live, self._rule, self._rates, routing_request.verdict
        num_taken, num_permits = live.limiter.permits()
        is_known, quality = True, rule.quality
        if verdict is not None:
            is_known, quality = verdict.is_known, verdict.quality.get(live.id, quality)
        return DeploymentView(
            live.id,
            live.model,
            live.is_ready,
            is_ejected,
            num_taken,
            num_permits,
            self.weight,
            wait_s + made.seconds * made.caution,
            made.tpot_s,
            None if rates is None else cost_of(rates, price),
            quality,
            is_known,
            price.prompt_tokens - price.uncached_tokens,
            price.prompt_tokens,
            rule.zone,
            routing_request.last_deployment == live.id,
        )


Seen = tuple[LiveCandidate, DeploymentView]
"""A candidate that was forecast for a request just now, and its view."""

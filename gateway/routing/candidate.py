"""Candidate: one deployment as one route may choose it, and how it looks to a request now."""

from __future__ import annotations

from typing import NamedTuple

from gateway.routing.ask import Ask
from gateway.routing.live import LiveDeployment
from routing_policies.document import Deployment
from routing_policies.price import cost_of
from routing_policies.views import DeploymentView


class Candidate:
    """What the policy says of it, beside its live state."""

    __slots__ = ("_rule", "live", "weight")

    def __init__(self, rule: Deployment, live: LiveDeployment, weight: float) -> None:
        self._rule = rule
        self.live = live
        self.weight = weight

    def plain_view(self, *, is_ejected: bool = False) -> DeploymentView:
        """What is at hand."""
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
        )

    def view(self, now: float, ask: Ask, *, is_ejected: bool = False, seen: Seen | None = None) -> DeploymentView:
        """With what it would take and cost to answer this request here: as it was `seen` just now, if it was."""
        live, rule = self.live, self._rule
        limiter, forecast, verdict = live.limiter, live.forecast, ask.verdict
        price = ask.price_at(live.id)
        tpot_s: float | None = None
        if seen is None:
            wait_s = limiter.wait_s(now, ask.claim)
            ttft_s = forecast.ttft_s(now, price.uncached_tokens, ask.claim.lane.engine_lane)
        else:
            _, wait_s, ttft_s, tpot_s = seen
        return DeploymentView(
            id=live.id,
            model=live.model,
            is_ready=live.is_ready,
            is_ejected=is_ejected,
            in_flight=limiter.in_flight,
            max_in_flight=limiter.limit,
            weight=self.weight,
            forecast_ttft_s=wait_s + ttft_s * forecast.caution(now),
            tpot_s=forecast.tpot_s(now) if tpot_s is None else tpot_s,
            cost=cost_of(rule.cost_per_mtok, price),
            quality=rule.quality if verdict is None else verdict.quality.get(live.id, rule.quality),
            is_known_prompt=verdict is None or verdict.is_known,
            affinity_tokens=price.prompt_tokens - price.uncached_tokens,
            prompt_tokens=price.prompt_tokens,
            zone=rule.zone,
            is_same_session=ask.last_deployment == live.id,
        )


class Seen(NamedTuple):
    """Who was looked at for a request just now, and what was forecast."""

    option: Candidate
    wait_s: float
    """For a permit."""
    ttft_s: float
    """From there to the first token."""
    tpot_s: float | None
    """None where nobody asked."""

"""Worth: what the tokens of a request cost under the policy in force, and what they would have cost at most."""

from __future__ import annotations

from gateway.telemetry.records.record import Usage
from routing_policies.matching import RouteTable
from routing_policies.policy.document import CostPerMtok, Policy


class Worth:
    """Prices of one policy revision, in the operator's currency."""

    __slots__ = ("_dearest", "_rates")

    def __init__(self, policy: Policy) -> None:
        self._rates = {item.id: item.cost_per_mtok for item in policy.deployments if item.cost_per_mtok is not None}
        self._dearest: dict[str, CostPerMtok] = {}
        for route in RouteTable(policy).effective_routes():
            rates = [self._rates[one.id] for one in route.select.resolved() if one.id in self._rates]
            if rates:
                self._dearest[route.id] = max(rates, key=lambda rate: rate.prompt + rate.completion)

    def cost(self, deployment: str, usage: Usage) -> float | None:
        """What the deployment takes for it, None where that is not known."""
        rates = self._rates.get(deployment)
        return None if rates is None else _cost(rates, usage)

    def dearest(self, route: str, usage: Usage) -> float:
        """At the dearest of the route's candidates; 0 where no price is known."""
        rates = self._dearest.get(route)
        return 0.0 if rates is None else _cost(rates, usage)


def worth_of(policy: Policy) -> Worth | None:
    """None where the policy has no prices at all."""
    return Worth(policy) if any(item.cost_per_mtok is not None for item in policy.deployments) else None


def _cost(rates: CostPerMtok, usage: Usage) -> float:
    return (rates.prompt * usage.prompt_tokens + rates.completion * usage.completion_tokens) / 1e6

"""Worth: cost of a request's tokens under the policy in force, and at the dearest candidate."""

from __future__ import annotations

from gateway.telemetry.records.record import Usage
from routing_policies.matching import RouteTable
from routing_policies.policy.deployment import CostPerMtok
from routing_policies.policy.document import Policy
from routing_policies.policy.members import group_of


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
        """Return the cost of `usage` at a deployment, or None where it has no price."""
        rates = self._rates.get(group_of(deployment))
        return None if rates is None else _cost(rates, usage)

    def dearest(self, route: str, usage: Usage) -> float:
        """Return the cost of `usage` at the route's dearest candidate; 0 where none has a price."""
        rates = self._dearest.get(route)
        return 0.0 if rates is None else _cost(rates, usage)


def worth_of(policy: Policy) -> Worth | None:
    """Return the policy's prices, or None where it has none."""
    return Worth(policy) if any(item.cost_per_mtok is not None for item in policy.deployments) else None


def _cost(rates: CostPerMtok, usage: Usage) -> float:
    return (rates.prompt * usage.prompt_tokens + rates.completion * usage.completion_tokens) / 1e6

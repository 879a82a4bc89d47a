"""RouteTable: the one route that takes a request, by its model, tenant and headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from routing_policies.conditions.condition import Condition, Facts
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.document import Match, Policy, Route
from routing_policies.policy.members import group_of
from routing_policies.policy.references import known_models
from routing_policies.policy.selection import Select
from routing_policies.policy.values import NoRouteCode

AUTO = "auto"
IMPLIED_AUTO = "implied-auto"
IMPLIED_DIRECT = "implied-direct"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """Properties of a request that matching uses; header names are lower case."""

    model: str
    tenant: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    facts: Facts | None = None
    """Facts for conditions; without them no route with a condition matches."""


class NoRoute(LookupError):
    """Error for a request without a route; `code` is the error code for the client."""

    def __init__(self, code: NoRouteCode, model: str) -> None:
        self.code: NoRouteCode = code
        self.model = model
        super().__init__(f"{code}: {model}")


class RouteTable:
    """Routes of one policy revision, with the two implied ones.

    1. The written routes, in order; the first whose conditions all hold.
    2. `implied-auto` takes `auto`: every deployment, in document order, first available.
    3. `implied-direct` takes a deployment's own model or id: the deployments or members so named, emptiest first.
    """

    def __init__(self, policy: Policy) -> None:
        self._routes = policy.routes
        self.conditions = {
            route.id: Condition(route.match.when) for route in policy.routes if route.match.when is not None
        }
        """Compiled conditions by route; routes without one are absent."""
        self._models = known_models(policy)
        self._allowed = {tenant.id: frozenset(tenant.models) for tenant in policy.tenants if tenant.models is not None}
        self._implied = _implied_routes(policy.deployments)

    def knows(self, model: str) -> bool:
        """Return whether the policy has this name, for any tenant."""
        return model in self._models

    def match(self, request: RequestView) -> Route:
        """Return the route that takes the request; raises NoRoute."""
        if request.model not in self._models:
            raise NoRoute("model_not_found", request.model)
        if not self._may_use(request.tenant, request.model):
            raise NoRoute("model_not_allowed", request.model)
        for route in self._routes:
            if _matches(route.match, request) and (route.match.when is None or self._holds(route, request)):
                return route
        implied = self._implied.get(request.model)
        if implied is None:
            # An alias whose routes are for other tenants: for this caller the name does not exist.
            raise NoRoute("model_not_found", request.model)
        return implied

    def models_for(self, tenant: str | None) -> tuple[str, ...]:
        """Return the names that this tenant may request, regardless of headers.

        `auto` comes first, then the names in document order.
        """
        return tuple(name for name in self._models if self._may_use(tenant, name) and self._has_route(name, tenant))

    def routes_of(self, model: str, tenant: str | None) -> tuple[Route, ...]:
        """Return the routes that may take the tenant's requests for this model, in the order tried."""
        found = [
            route
            for route in self._routes
            if model in route.match.models and (route.match.tenants is None or tenant in route.match.tenants)
        ]
        sure = next((place for place, route in enumerate(found) if _is_sure(route.match)), None)
        if sure is not None:  # nothing behind it is ever reached
            return tuple(found[: sure + 1])
        implied = self._implied.get(model)
        return tuple(found) if implied is None else (*found, implied)

    def effective_routes(self) -> tuple[Route, ...]:
        """Return every route in the order tried, the implied ones last."""
        return (*self._routes, *self._implied.values())

    def _holds(self, route: Route, request: RequestView) -> bool:
        facts = request.facts
        return facts is not None and self.conditions[route.id].holds(facts, request.tenant, request.headers)

    def _may_use(self, tenant: str | None, model: str) -> bool:
        allowed = None if tenant is None else self._allowed.get(tenant)
        return allowed is None or model in allowed

    def _has_route(self, model: str, tenant: str | None) -> bool:
        return model in self._implied or any(
            model in route.match.models and (route.match.tenants is None or tenant in route.match.tenants)
            for route in self._routes
        )


def _matches(match: Match, request: RequestView) -> bool:
    return (
        request.model in match.models
        and (match.tenants is None or request.tenant in match.tenants)
        and all(request.headers.get(name) == value for name, value in match.headers.items())
    )


def _is_sure(match: Match) -> bool:
    """Return whether a route takes every request for its models."""
    return not match.headers and match.when is None


def _implied_routes(deployments: tuple[Deployment, ...]) -> dict[str, Route]:
    """Return the implied route of each model name; a name that is both an id and a model reaches both."""
    everything = Select(candidates=tuple(deployment.id for deployment in deployments))
    routes = {AUTO: Route(id=IMPLIED_AUTO, match=Match(models=(AUTO,)), select=everything)}
    named: dict[str, list[str]] = {}
    for deployment in deployments:
        for name in dict.fromkeys((deployment.model, group_of(deployment.id))):
            named.setdefault(name, []).append(deployment.id)
    for name, ids in named.items():
        select = Select(candidates=tuple(ids), policy="least_in_flight")
        routes.setdefault(name, Route(id=IMPLIED_DIRECT, match=Match(models=(name,)), select=select))
    return routes

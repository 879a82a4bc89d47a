"""From a request's model, tenant and headers to the one route that takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from routing_policies.conditions.condition import Condition, Facts
from routing_policies.policy.document import Deployment, Match, NoRouteCode, Policy, Route, Select
from routing_policies.policy.references import known_models

AUTO = "auto"
IMPLIED_AUTO = "implied-auto"
IMPLIED_DIRECT = "implied-direct"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """What routing may know about a request. Header names are lower case."""

    model: str
    tenant: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    facts: Facts | None = None
    """What conditions ask about; None: no route with a condition takes it."""


class NoRoute(LookupError):
    """The request goes nowhere; `code` is the error code the client gets."""

    def __init__(self, code: NoRouteCode, model: str) -> None:
        self.code: NoRouteCode = code
        self.model = model
        super().__init__(f"{code}: {model}")


class RouteTable:
    """The routes of one policy revision, with the two that exist unwritten.

    1. The written routes, in order; the first whose every condition holds.
    2. `implied-auto` takes `auto`: every deployment, in document order, first available.
    3. `implied-direct` takes a deployment's own model or id: the deployments so named, emptiest first.
    """

    def __init__(self, policy: Policy) -> None:
        self._routes = policy.routes
        self.conditions = {
            route.id: Condition(route.match.when) for route in policy.routes if route.match.when is not None
        }
        """By route, of those that have one."""
        self._models = known_models(policy)
        self._allowed = {tenant.id: frozenset(tenant.models) for tenant in policy.tenants if tenant.models is not None}
        self._implied = _implied_routes(policy.deployments)

    def match(self, request: RequestView) -> Route:
        """The route that takes the request. Raises NoRoute."""
        if request.model not in self._models:
            raise NoRoute("model_not_found", request.model)
        if not self._may_use(request.tenant, request.model):
            raise NoRoute("model_not_allowed", request.model)
        for route in self._routes:
            if _matches(route.match, request) and (route.match.when is None or self._holds(route, request)):
                return route
        implied = self._implied.get(request.model)
        if implied is None:
            # A written alias whose routes are for others: to this caller the name does not exist.
            raise NoRoute("model_not_found", request.model)
        return implied

    def models_for(self, tenant: str | None) -> tuple[str, ...]:
        """Names that this tenant may ask for, whatever its headers: `auto` first, then in document order."""
        return tuple(name for name in self._models if self._may_use(tenant, name) and self._has_route(name, tenant))

    def effective_routes(self) -> tuple[Route, ...]:
        """Every route in the order tried, the implied ones last."""
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


def _implied_routes(deployments: tuple[Deployment, ...]) -> dict[str, Route]:
    """Model name → the unwritten route that takes it. A name that is an id and a model reaches both."""
    everything = Select(candidates=tuple(deployment.id for deployment in deployments))
    routes = {AUTO: Route(id=IMPLIED_AUTO, match=Match(models=(AUTO,)), select=everything)}
    named: dict[str, list[str]] = {}
    for deployment in deployments:
        for name in dict.fromkeys((deployment.model, deployment.id)):
            named.setdefault(name, []).append(deployment.id)
    for name, ids in named.items():
        select = Select(candidates=tuple(ids), policy="least_in_flight")
        routes.setdefault(name, Route(id=IMPLIED_DIRECT, match=Match(models=(name,)), select=select))
    return routes

"""ProvenPolicy: one policy with what all of its proofs use, and the code that serves requests run on a candidate."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from routing_policies.check import request_view, served_route
from routing_policies.matching import IMPLIED_AUTO, IMPLIED_DIRECT, NoRoute, RouteTable
from routing_policies.policy.document import Policy, Route
from routing_policies.policy.policy_tests import TestRequest
from routing_policies.policy.values import OperationName
from routing_policies.profile import profile_of
from routing_policies.proof.atoms import AtomTable, Value
from routing_policies.proof.formula import Formula, Negation
from routing_policies.proof.search import Confirm, RequestSearch, SearchResult
from routing_policies.views import FIRST_ATTEMPT, DeploymentView

_IMPLIED = frozenset({IMPLIED_AUTO, IMPLIED_DIRECT})
_HEADER = "header:"


class ProvenPolicy:
    """A policy, its atoms, and a search over them."""

    def __init__(self, policy: Policy, *, max_nodes: int) -> None:
        self.policy = policy
        self.table = RouteTable(policy)
        self.atoms = AtomTable(policy)
        self.search = RequestSearch(self.atoms, max_nodes=max_nodes)
        self.deployments = {deployment.id: deployment for deployment in policy.deployments}
        self._reads_bytes = any("prompt_bytes" in (route.match.when or "") for route in policy.routes)
        self._routes: dict[str, list[Route]] = {}
        for route in policy.routes:
            for model in route.match.models:
                self._routes.setdefault(model, []).append(route)
        self._found: dict[tuple[str, str], SearchResult] = {}
        self._excluded: frozenset[str] = frozenset()
        """Routes that the last search had to exclude; the next route of a list mostly needs the same."""

    @cached_property
    def tenants(self) -> dict[str | None, int]:
        """Tenants, with the keyless one where no key is required, and the bit of each."""
        return {
            None if tenant is None else str(tenant): 1 << place
            for place, tenant in enumerate(self.atoms.values["tenant"])
        }

    def tenants_of(self, model: str) -> int:
        """Return the tenants that may request a model, as bits."""
        allowed = {tenant.id: tenant.models for tenant in self.policy.tenants}
        models = {tenant: allowed.get(tenant or "") for tenant in self.tenants}
        return sum(bit for tenant, bit in self.tenants.items() if (names := models[tenant]) is None or model in names)

    def routes_of(self, model: str) -> Sequence[Route]:
        """Return the written routes of a model, in the order tried."""
        return self._routes.get(model, ())

    def masks(self, model: str, tenants: int | None = None) -> dict[str, int]:
        """Return the values that a request for a model can have."""
        allowed = self.tenants_of(model)
        return {
            "model": self.atoms.mask_of("model", model.__eq__),
            "tenant": allowed if tenants is None else allowed & tenants,
        }

    def match_of(self, route: Route) -> Formula:
        """Return a route's match, without its models."""
        return self.atoms.matches[route.id]

    def find(self, formulas: Sequence[Formula], masks: Mapping[str, int], confirm: Confirm) -> SearchResult:
        """Return a request; see `RequestSearch.find`."""
        return self.search.find(formulas, masks, confirm)

    def reach(self, route: Route, model: str) -> SearchResult:
        """Return a request for a model that a route takes, before any fallback."""
        known = self._found.get((route.id, model))
        if known is None:
            known = self._found[route.id, model] = self.first_match(route, model, self.masks(model))
        return known

    def reached(self, route: Route) -> SearchResult:
        """Return a request that a route takes, for any of its models; exact only where every search was."""
        is_exact = True
        for model in route.match.models:
            found = self.reach(route, model)
            if found.values is not None:
                return found
            is_exact = is_exact and found.is_exact
        return SearchResult(None, is_exact)

    def first_match(
        self, route: Route, model: str, masks: Mapping[str, int], more: Sequence[Formula] = ()
    ) -> SearchResult:
        """Return a request that a route takes, and for which further formulas hold."""
        routes = self.routes_of(model)
        place = next(place for place, other in enumerate(routes) if other.id == route.id)
        return self._taken(route.id, [self.match_of(route), *more], masks, routes[:place])

    def unmatched(self, model: str) -> SearchResult:
        """Return a request for a model that no written route takes."""
        return self._taken(None, [], self.masks(model), self.routes_of(model))

    def is_surely_taken(self, model: str, tenant: str | None) -> bool:
        """Return whether a route takes every request of a tenant, or of any that may name the model where None."""
        return any(
            route.match.when is None
            and not route.match.headers
            and (route.match.tenants is None or (tenant is not None and tenant in route.match.tenants))
            for route in self.routes_of(model)
        ) and bool(self.tenants_of(model) if tenant is None else self.tenants_of(model) & self.tenants[tenant])

    def any_match(self, model: str, masks: Mapping[str, int]) -> SearchResult:
        """Return a request for a model that any written route takes."""
        is_exact = True
        for route in sorted(self.routes_of(model), key=lambda route: route.match.when is not None):
            found = self.find(
                [self.match_of(route)], masks, lambda values: self.taken_by(self.request_of(values)) is not None
            )
            if found.values is not None:
                return found
            is_exact = is_exact and found.is_exact
        return SearchResult(None, is_exact)

    def _taken(
        self, wanted: str | None, formulas: Sequence[Formula], masks: Mapping[str, int], others: Sequence[Route]
    ) -> SearchResult:
        """Return a request that `wanted` takes, or no written route where that is None.

        Other routes are excluded one at a time, when one takes what was found, so few of many routes are looked at.
        """
        left = {route.id: route for route in others}
        excluded = [route for route in others if route.match.when is None or route.id in self._excluded]
        while True:
            for route in excluded:
                left.pop(route.id, None)
            takers: list[str | None] = []

            def confirm(values: Mapping[str, Value], takers: list[str | None] = takers) -> bool:
                takers.append(self.taken_by(self.request_of(values)))
                return takers[-1] == wanted or takers[-1] in left

            against = [Negation(self.match_of(route)) for route in excluded]
            found = self.find([*formulas, *against], masks, confirm)
            if found.values is None or takers[-1] == wanted:
                names = tuple(route.id for route in others if route.id not in left)
                self._excluded = frozenset(names)
                return SearchResult(found.values, found.is_exact, names)
            excluded.append(left[str(takers[-1])])

    def request_of(self, values: Mapping[str, Value], operation: OperationName = "chat") -> TestRequest:
        """Return the request with these values."""
        text = str(values["text"])
        num_bytes = int(values["prompt_bytes"] or 0)
        headers = {
            name.removeprefix(_HEADER): str(value)
            for name, value in values.items()
            if name.startswith(_HEADER) and value
        }
        tenant = values["tenant"]
        return TestRequest(
            model=str(values["model"]),
            operation=operation,
            tenant=None if tenant is None else str(tenant),
            text=text,
            turns=int(values["turns"] or 0),
            prompt_bytes=num_bytes if self._reads_bytes and num_bytes != len(text.encode()) else None,
            has_tools=bool(values["has_tools"]),
            has_images=bool(values["has_images"]),
            stream=bool(values["stream"]),
            headers=headers,
        )

    def taken_by(self, request: TestRequest) -> str | None:
        """Return the written route that takes and serves a request, by the code that serves requests."""
        route = self.written(request)
        return None if route is None else route.id

    def written(self, request: TestRequest) -> Route | None:
        """Return the written route that takes a request, whatever operations it serves; None without one."""
        try:
            route = self.table.match(request_view(request))
        except NoRoute:
            return None
        return None if route.id in _IMPLIED else route

    def outcome(self, request: TestRequest) -> str:
        """Return the result of routing a request, in words."""
        try:
            return f"takes route {served_route(self.policy, self.table.match(request_view(request)), request).id}"
        except NoRoute as error:
            return f"gets {error.code}"

    def chosen(self, route: Route, ready: Collection[str]) -> str | None:
        """Return the deployment that a route chooses where only some are ready."""
        views = [
            DeploymentView(
                id=item.id,
                model=self.deployments[item.id].model,
                is_ready=item.id in ready,
                max_in_flight=self.deployments[item.id].limits.max_in_flight,
                weight=item.weight,
            )
            for item in route.select.resolved()
        ]
        return profile_of(route.select).decide(views, FIRST_ATTEMPT, random.Random(0)).deployment

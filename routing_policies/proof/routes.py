"""Proofs about matching: every route and alias is reached, and a name that is `total` is always served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from routing_policies.matching import AUTO
from routing_policies.operations import operations_of
from routing_policies.policy.document import Route
from routing_policies.policy.members import group_of
from routing_policies.policy.policy_tests import TestRequest
from routing_policies.policy.values import OperationName
from routing_policies.proof.atoms import Value
from routing_policies.proof.findings import OpenQuestion, Violation, unproven
from routing_policies.proof.formula import Negation
from routing_policies.proof.requests import ProvenPolicy
from routing_policies.proof.search import SearchResult

Found = Violation | OpenQuestion


def unserved_names(proven: ProvenPolicy) -> Iterator[Found]:
    """Yield a request without a written route, or without one that serves it, for each name that is `total`."""
    for index, model in enumerate(proven.policy.total):
        routes = proven.routes_of(model)
        found = proven.unmatched(model)
        if found.values is not None:
            request = proven.request_of(found.values)
            outcome = proven.outcome(request)
            message = f'"{model}" is not total: a request that no written route takes {outcome}'
            yield Violation(kind="not_total", path=("total", index), message=message, requests=(request,))
        elif not found.is_exact:
            yield unproven("not_total", ("total", index), f'"{model}" is total')
        else:
            yield from _unsupported(proven, model, index, routes)


def _unsupported(proven: ProvenPolicy, model: str, index: int, routes: Sequence[Route]) -> Iterator[Found]:
    """Yield an operation that some routes of a name serve, with a request that meets a route which does not."""
    served = {route.id: _operations(proven, route) for route in routes}
    for operation in sorted(set().union(*served.values())):
        for route in routes:
            if operation in served[route.id]:
                continue
            masks = {**proven.masks(model), **_masks_of(proven, operation)}
            found = proven.first_match(route, model, masks)
            if found.values is not None:
                request = proven.request_of(found.values, operation)
                message = (
                    f'"{model}" is not total: route {route.id} takes a request of operation {operation}, which '
                    f"{proven.outcome(request)}"
                )
                yield Violation(kind="not_total", path=("total", index), message=message, requests=(request,))
                return
            if not found.is_exact:
                yield unproven("not_total", ("total", index), f'"{model}" is total for operation {operation}')
                return


def _operations(proven: ProvenPolicy, route: Route) -> frozenset[OperationName]:
    return frozenset(
        operation for item in route.select.resolved() for operation in operations_of(proven.deployments[item.id])
    )


def _masks_of(proven: ProvenPolicy, operation: OperationName) -> dict[str, int]:
    """Return the values that a request of an operation can have."""
    if operation == "chat":
        return {}
    flags = ("has_tools", "has_images") if operation == "completions" else ("has_tools", "has_images", "stream")
    return {flag: proven.atoms.mask_of(flag, lambda value: value is False) for flag in flags}


def unreached_routes(proven: ProvenPolicy) -> Iterator[Found]:
    """Yield the routes that no request reaches, neither by its match nor as a fallback of a route that is reached."""
    routes = {route.id: route for route in proven.policy.routes}
    found = {route.id: proven.reached(route) for route in proven.policy.routes}
    in_use = {name for route in routes.values() if found[route.id].values is not None for name in route.select.fallback}
    for index, route in enumerate(proven.policy.routes):
        if found[route.id].values is None and route.id not in in_use:
            yield _unreached(proven, index, route, found[route.id])


def _unreached(proven: ProvenPolicy, index: int, route: Route, found: SearchResult) -> Found:
    path = ("routes", index)
    if not found.is_exact:
        return unproven("unreachable_route", path, f"route {route.id} is reached")
    meets = [(model, _matching(proven, route, model)) for model in route.match.models]
    shadowed = [(model, values) for model, values in meets if values is not None]
    if shadowed:
        names = dict.fromkeys(name for model, _ in shadowed for name in _shadowing(proven, route, model))
        request = proven.request_of(shadowed[0][1])
        shown = ", ".join(names)
        message = (
            f"route {route.id} is never reached: {shown} {'takes' if len(names) == 1 else 'take'} every request that "
            f"it matches; the one shown {proven.outcome(request)}"
        )
        return Violation(kind="unreachable_route", path=path, message=message, requests=(request,))
    request = _plain_request(proven, route)
    message = (
        f"route {route.id} is never reached: no request of a tenant that may name its models meets its match; the one "
        f"shown {proven.outcome(request)}"
    )
    return Violation(kind="unreachable_route", path=path, message=message, requests=(request,))


def _matching(proven: ProvenPolicy, route: Route, model: str) -> Mapping[str, Value] | None:
    """Return a request that a route's own match takes, whatever route takes it before."""
    return proven.find([proven.match_of(route)], proven.masks(model), lambda values: True).values


def _shadowing(proven: ProvenPolicy, route: Route, model: str) -> list[str]:
    """Return a smallest set of earlier routes that take all of a route's requests for a model."""
    excluded = proven.reach(route, model).against
    needed = [other for other in proven.routes_of(model) if other.id in excluded]
    for other in reversed(needed):
        fewer = [one for one in needed if one.id != other.id]
        formulas = [proven.match_of(route), *(Negation(proven.match_of(one)) for one in fewer)]
        if proven.find(formulas, proven.masks(model), lambda values: True).is_impossible:
            needed = fewer
    return [one.id for one in needed]


def _plain_request(proven: ProvenPolicy, route: Route) -> TestRequest:
    found = proven.find([], {"model": proven.masks(route.match.models[0])["model"]}, lambda values: True)
    assert found.values is not None, "an unlimited search finds the first values"
    return proven.request_of(found.values)


def unreached_aliases(proven: ProvenPolicy) -> Iterator[Found]:
    """Yield the names in routes that no request reaches, and those that a tenant may name and never reaches."""
    deployments = proven.policy.deployments
    implied = {AUTO, *(name for one in deployments for name in (one.model, group_of(one.id)))}
    for index, route in enumerate(proven.policy.routes):
        for place, model in enumerate(route.match.models):
            if proven.routes_of(model)[0].id != route.id or model in implied:
                continue
            path = ("routes", index, "match", "models", place)
            yield from _unreached_alias(proven, model, None, path)
    for index, tenant in enumerate(proven.policy.tenants):
        for place, model in enumerate(tenant.models or ()):
            if model not in implied:
                yield from _unreached_alias(proven, model, tenant.id, ("tenants", index, "models", place))


def _unreached_alias(
    proven: ProvenPolicy, model: str, tenant: str | None, path: tuple[str | int, ...]
) -> Iterator[Found]:
    if proven.is_surely_taken(model, tenant):
        return
    tenants = None if tenant is None else proven.tenants[tenant]
    masks = proven.masks(model, tenants)
    found = proven.any_match(model, masks)
    if found.values is not None:
        return
    whom = "any tenant" if tenant is None else f"tenant {tenant}"
    if not found.is_exact:
        yield unproven("unreachable_alias", path, f'"{model}" is reached by {whom}')
        return
    masks = {"model": masks["model"]} if not masks["tenant"] else masks
    found = proven.find([], masks, lambda values: True)
    assert found.values is not None, "a search without formulas finds the first values"
    request = proven.request_of(found.values)
    message = (
        f'"{model}" is never served to {whom}: no route takes a request for it; the one shown {proven.outcome(request)}'
    )
    yield Violation(kind="unreachable_alias", path=path, message=message, requests=(request,))

"""BlastRadius: the tenants and routes that a change of policy can affect."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from routing_policies.matching import AUTO, IMPLIED_AUTO, IMPLIED_DIRECT
from routing_policies.policy.diff import PolicyChange
from routing_policies.policy.document import Policy, Route


class BlastRadius(msgspec.Struct, frozen=True, kw_only=True):
    """Tenants and routes that a change can affect."""

    tenants: tuple[str, ...] | None
    """Affected tenants; None for all."""
    routes: tuple[str, ...]
    """Routes of either policy whose requests may be served differently."""
    changed_tenants: tuple[str, ...] = ()
    """Tenants whose own entry changes, on any route."""
    is_everything: bool = False
    """True if something shared by all requests changes."""

    def touches(self, tenant: str, route: str) -> bool:
        """Return whether a request of this tenant, on this route until now, may be served differently."""
        return self.is_everything or tenant in self.changed_tenants or route in self.routes


def blast_radius(changes: Iterable[PolicyChange], old: Policy, new: Policy) -> BlastRadius:
    """Return the radius of `changes`, which lead from `old` to `new`; changed tests affect nothing."""
    changes = [change for change in changes if change.what != "test"]
    routes: dict[str, None] = {}
    tenants: dict[str, None] = {}
    is_everything = False
    for change in changes:
        if change.what == "route":
            routes |= dict.fromkeys(_routes_touched(change, old, new))
        elif change.what == "deployment":
            routes |= dict.fromkeys(_routes_using(str(change.id), old, new))
        elif change.what == "tenant":
            tenants[str(change.id)] = None
        else:
            is_everything = True
    named = _tenants_of(routes, old, new)
    everybody = is_everything or named is None
    return BlastRadius(
        tenants=None if everybody else tuple(dict.fromkeys((*tenants, *(named or ())))),
        routes=tuple(routes),
        changed_tenants=tuple(tenants),
        is_everything=is_everything,
    )


def _routes_touched(change: PolicyChange, old: Policy, new: Policy) -> list[str]:
    """Return the route itself and, when its matches change, the routes that lose or gain requests."""
    route = str(change.id)
    if change.kind == "changed" and not change.path.startswith(f"routes.{route}.match"):
        return [route]
    found = [route]
    for policy in (old, new):
        ids = [item.id for item in policy.routes]
        if route not in ids:
            continue
        mine = policy.routes[ids.index(route)]
        behind = policy.routes[ids.index(route) + 1 :]
        found += [item.id for item in behind if _overlap(mine, item)]
        found += [IMPLIED_AUTO if model == AUTO else IMPLIED_DIRECT for model in mine.match.models]
    return list(dict.fromkeys(found))


def _overlap(one: Route, other: Route) -> bool:
    """Return whether some request may match both routes."""
    if not set(one.match.models) & set(other.match.models):
        return False
    mine, theirs = one.match.tenants, other.match.tenants
    return mine is None or theirs is None or bool(set(mine) & set(theirs))


def _routes_using(deployment: str, old: Policy, new: Policy) -> list[str]:
    found = [
        route.id
        for policy in (old, new)
        for route in policy.routes
        if deployment in {item.id for item in route.select.resolved()} | set(route.select.fallback)
    ]
    return list(dict.fromkeys([*found, IMPLIED_AUTO, IMPLIED_DIRECT]))


def _tenants_of(routes: Iterable[str], old: Policy, new: Policy) -> tuple[str, ...] | None:
    """Return the tenants whose requests these routes take, or None when one of them is open to all."""
    found: dict[str, None] = {}
    for id in routes:
        written = [route for policy in (old, new) for route in policy.routes if route.id == id]
        for route in written:
            if route.match.tenants is None:
                return None
            found |= dict.fromkeys(route.match.tenants)
    return tuple(found)

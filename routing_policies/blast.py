"""Blast radius: which tenants and routes a change of policy can touch."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from routing_policies.matching import AUTO, IMPLIED_AUTO, IMPLIED_DIRECT
from routing_policies.policy.diff import PolicyChange
from routing_policies.policy.document import Policy, Route


class BlastRadius(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a change can reach."""

    tenants: tuple[str, ...] | None
    """None is everybody."""
    routes: tuple[str, ...]
    """Routes of either policy whose requests may be served in another way."""
    changed_tenants: tuple[str, ...] = ()
    """Tenants whose own entry changes, whatever route takes their requests."""
    is_everything: bool = False
    """Something all requests share has changed."""

    def touches(self, tenant: str, route: str) -> bool:
        """Whether a request of this tenant, served by this route until now, may be served differently."""
        return self.is_everything or tenant in self.changed_tenants or route in self.routes


def blast_radius(changes: Iterable[PolicyChange], old: Policy, new: Policy) -> BlastRadius:
    """The radius of `changes`, which lead from `old` to `new`. Tests of the policy change nothing for anybody."""
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
    """The route itself and, when it takes other requests than before, those that lose or get them."""
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
    """Whether some request may match both."""
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
    """Tenants whose requests these routes take; None when one of them is open to all."""
    found: dict[str, None] = {}
    for id in routes:
        written = [route for policy in (old, new) for route in policy.routes if route.id == id]
        for route in written:
            if route.match.tenants is None:
                return None
            found |= dict.fromkeys(route.match.tenants)
    return tuple(found)

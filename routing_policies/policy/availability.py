"""Problems for settings that would have no effect; they are rejected, never ignored."""

from __future__ import annotations

from collections.abc import Iterator

from routing_policies.policy.document import Policy, Route, Tenant
from routing_policies.policy.problems import Path, PathProblem


def unavailable(policy: Policy) -> Iterator[PathProblem]:
    """Yield one problem for each setting that would have no effect."""
    for index, tenant in enumerate(policy.tenants):
        yield from _tenant(tenant, ("tenants", index))
    for index, route in enumerate(policy.routes):
        yield from _route(route, ("routes", index))


def _tenant(tenant: Tenant, path: Path) -> Iterator[PathProblem]:
    for name in tenant.flags:
        if name != "canary":
            yield PathProblem(path=(*path, "flags", name), message="no such feature; known: canary")


def _route(route: Route, path: Path) -> Iterator[PathProblem]:
    if route.trim.budget_tokens is not None and not route.trim.strategies:
        message = "a budget without strategies would have no effect; name some, such as [minify, drop_old_turns]"
        yield PathProblem(path=(*path, "trim", "budget_tokens"), message=message)

"""What the schema knows and this version does not do yet: refused, never ignored.

Each check goes when its feature works; nothing else has to change.
"""

from __future__ import annotations

from collections.abc import Iterator

from routing_policies.document import Deployment, Lane, Policy, Route, Tenant
from routing_policies.problems import Finding, Path

_SUFFIX = "is not available in this version"


def unavailable(policy: Policy) -> Iterator[Finding]:
    """One finding for each setting that would have no effect."""
    for index, deployment in enumerate(policy.deployments):
        yield from _deployment(deployment, ("deployments", index))
    for index, lane in enumerate(policy.lanes):
        yield from _lane(lane, ("lanes", index))
    for index, tenant in enumerate(policy.tenants):
        yield from _tenant(tenant, ("tenants", index))
    for index, route in enumerate(policy.routes):
        yield from _route(route, ("routes", index))


def _deployment(deployment: Deployment, path: Path) -> Iterator[Finding]:
    if deployment.zone is not None:
        yield _finding((*path, "zone"), "choosing by zone", "remove it")


def _lane(lane: Lane, path: Path) -> Iterator[Finding]:
    if lane.slo is not None:
        yield _finding((*path, "slo"), "holding a lane to latency targets", "remove it")
    if lane.on_overload != ("shed",):
        yield _finding((*path, "on_overload"), "a ladder of degradations", "remove it or write [shed]")


def _tenant(tenant: Tenant, path: Path) -> Iterator[Finding]:
    for name in ("requests_per_min", "tokens_per_min"):
        if getattr(tenant.limits, name) is not None:
            yield _finding((*path, "limits", name), "a limit per minute", "remove it; max_in_flight works")
    if tenant.flags:
        yield _finding((*path, "flags"), "a tenant's flags", "remove it")


def _route(route: Route, path: Path) -> Iterator[Finding]:
    if route.match.when is not None:
        yield _finding((*path, "match", "when"), "matching by expression", "match by models, tenants or headers")
    if route.trim.strategies or route.trim.budget_tokens is not None:
        yield _finding((*path, "trim"), "trimming", "remove it")
    if route.cache.mode != "off":
        yield _finding((*path, "cache", "mode"), f'cache mode "{route.cache.mode}"', "write off")
    if route.select.min_quality is not None:
        yield _finding((*path, "select", "min_quality"), "choosing by predicted quality", "remove it")
    if route.select.policy == "quality_then_latency":
        remedy = "use first_available, weighted or least_in_flight"
        yield _finding((*path, "select", "policy"), 'policy "quality_then_latency"', remedy)


def _finding(path: Path, what: str, remedy: str) -> Finding:
    return Finding(path=path, message=f"{what} {_SUFFIX}; {remedy}")

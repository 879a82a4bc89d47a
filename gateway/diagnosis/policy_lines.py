"""PolicyLines: the lines of the policy that the traffic of a window used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gateway.diagnosis.window import Window
from routing_policies.operations import CHAT, operations_of
from routing_policies.policy.document import DEFAULT_LANES, Policy
from routing_policies.policy.members import group_of

_REQUESTS: Final = "penstock_requests_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLines:
    """The busiest route, lane and deployment, and the latency targets in force."""

    route: str
    lane: str
    deployment: str
    """Label of the deployment in the metrics, or the id of one of its members."""
    ttft_target_s: float | None
    tpot_target_s: float | None
    routes: Mapping[str, str] = field(default_factory=dict)
    """Busiest route of each deployment, of those that the policy has."""
    candidates: frozenset[str] = frozenset()
    """Deployments of the busiest route; where it is not written in the policy, all that serve chat."""
    has_lane: bool = True
    """True if the document has the lane; false for one of the lanes of a policy without any."""

    def at(self, deployment: str) -> PolicyLines:
        """Return the lines for another deployment and its route."""
        return replace(self, deployment=deployment, route=self.routes.get(group_of(deployment), self.route))

    def route_path(self, rest: str) -> str | None:
        """Return the path of a line of the route, or None where the policy has no such route."""
        return f"routes.{self.route}.{rest}" if self.route else None

    def lane_path(self, rest: str) -> str | None:
        """Return the path of a line of the lane, or None where the document has no such lane."""
        return f"lanes.{self.lane}.{rest}" if self.lane and self.has_lane else None

    def deployment_path(self, rest: str, deployment: str | None = None) -> str:
        """Return the path of a line of a deployment or a member's deployment; the default is that of these lines."""
        return f"deployments.{group_of(deployment or self.deployment)}.{rest}"


def place_of(window: Window, policy: Policy) -> PolicyLines:
    """Return the policy lines that most of the window's requests used."""
    written = {route.id for route in policy.routes}
    busiest = _busiest(window, "route")
    used = _lanes_used(window)
    slos = [lane.slo for lane in policy.lanes if lane.slo is not None and lane.id in used]
    ttft = [slo.ttft_p95_ms / 1000 for slo in slos]
    tpot = [slo.tpot_p95_ms / 1000 for slo in slos if slo.tpot_p95_ms is not None]
    lane = max(used, key=lambda lane: used[lane], default="")
    lanes = () if policy.lanes is DEFAULT_LANES else policy.lanes
    return PolicyLines(
        route=busiest if busiest in written else "",
        lane=lane,
        deployment=_busiest(window, "deployment"),
        ttft_target_s=max(ttft, default=None),
        tpot_target_s=max(tpot, default=None),
        routes={item.id: found for item in policy.deployments if (found := _route_of(window, policy, item.id))},
        candidates=_candidates(policy, busiest),
        has_lane=any(known.id == lane for known in lanes),
    )


def _candidates(policy: Policy, route_id: str) -> frozenset[str]:
    chosen = [candidate.id for route in policy.routes if route.id == route_id for candidate in route.select.resolved()]
    return frozenset(chosen or (item.id for item in policy.deployments if CHAT in operations_of(item)))


def latest(window: Window, name: str, default: str) -> str:
    """Return the deployment whose latencies in a histogram grew most, summed over its requests."""
    excess = {}
    for deployment in sorted(window.last.gateway.values_of(name, "deployment") - {"", "cache"}):
        now, before = (spread(name, deployment=deployment) for spread in (window.spread, window.spread_before))
        excess[deployment] = now.total - now.count * before.mean
    worst = max(excess, key=lambda deployment: excess[deployment], default=default)
    return worst if excess.get(worst, 0.0) > 0.0 else default


def _busiest(window: Window, label: str) -> str:
    values = sorted(window.last.gateway.values_of(_REQUESTS, label) - {"", "cache"})
    return max(values, key=lambda value: window.counted(_REQUESTS, **{label: value}), default="")


def _route_of(window: Window, policy: Policy, deployment: str) -> str:
    """Return the route with most of a deployment's requests; without requests, the first that may choose it."""
    counts = {
        route.id: window.counted(_REQUESTS, route=route.id, deployment=deployment)
        for route in policy.routes
        if any(candidate.id == deployment for candidate in route.select.resolved())
    }
    return max(counts, key=lambda route: counts[route], default="")


def _lanes_used(window: Window) -> dict[str, float]:
    name = "penstock_queue_wait_seconds"
    counts = {
        lane: window.spread(name, lane=lane).count + window.counted("penstock_shed_total", lane=lane)
        for lane in sorted(
            window.last.gateway.values_of(name, "lane") | window.last.gateway.values_of("penstock_shed_total", "lane")
        )
        if lane
    }
    return {lane: count for lane, count in counts.items() if count > 0}

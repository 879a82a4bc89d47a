"""PolicyLines: the lines of the policy that the traffic of a window used."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.diagnosis.window import Window
from routing_policies.policy.document import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLines:
    """The busiest route, lane and deployment, and the latency targets in force."""

    route: str
    lane: str
    deployment: str
    ttft_target_s: float | None
    tpot_target_s: float | None

    def route_path(self, rest: str) -> str | None:
        """Return the path of a line of the route, or None where the policy has no such route."""
        return f"routes.{self.route}.{rest}" if self.route else None

    def lane_path(self, rest: str) -> str | None:
        """Return the path of a line of the lane, or None where the policy has no lanes."""
        return f"lanes.{self.lane}.{rest}" if self.lane else None

    def deployment_path(self, rest: str, deployment: str | None = None) -> str:
        """Return the path of a line of a deployment, the busiest one by default."""
        return f"deployments.{deployment or self.deployment}.{rest}"


def place_of(window: Window, policy: Policy) -> PolicyLines:
    """Return the policy lines that most of the window's requests used."""
    written = {route.id for route in policy.routes}
    busiest = _busiest(window, "penstock_requests_total", "route")
    used = _lanes_used(window)
    slos = [lane.slo for lane in policy.lanes if lane.slo is not None and lane.id in used]
    ttft = [slo.ttft_p95_ms / 1000 for slo in slos]
    tpot = [slo.tpot_p95_ms / 1000 for slo in slos if slo.tpot_p95_ms is not None]
    return PolicyLines(
        route=busiest if busiest in written else "",
        lane=max(used, key=lambda lane: used[lane], default=""),
        deployment=_busiest(window, "penstock_requests_total", "deployment"),
        ttft_target_s=max(ttft, default=None),
        tpot_target_s=max(tpot, default=None),
    )


def _busiest(window: Window, name: str, label: str) -> str:
    values = sorted(window.last.gateway.values_of(name, label) - {"", "cache"})
    return max(values, key=lambda value: window.counted(name, **{label: value}), default="")


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

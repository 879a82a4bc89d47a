"""Gauges that are read when metrics are scraped: permits, queues and forecasts of the policy in force."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.deployments.live import LiveDeployment
from gateway.limits.lane import LiveLane
from gateway.telemetry.metrics import FORECAST_ERROR_SHARES, GatewayMetrics


def read_live_gauges(metrics: GatewayMetrics, deployments: Iterable[LiveDeployment], lanes: Iterable[LiveLane]) -> None:
    """Set the gauges anew; those of objects that left the policy are removed.

    Members of a group count under its id, so the policy bounds the labels: permits add up, and errors are the worst.
    """
    for gauge in (
        *(metrics.queue_depth, metrics.concurrency_limit, metrics.in_flight),
        *(metrics.deployment_ready, metrics.forecast_error),
    ):
        gauge.clear()
    groups: dict[str, list[LiveDeployment]] = {}
    for live in deployments:
        groups.setdefault(live.group, []).append(live)
    for group, members in groups.items():
        metrics.concurrency_limit.labels(group).set(sum(live.limiter.limit for live in members if not live.has_left))
        metrics.in_flight.labels(group).set(sum(live.limiter.in_flight for live in members))
        metrics.deployment_ready.labels(group).set(any(live.is_ready for live in members))
        for share in FORECAST_ERROR_SHARES:
            errors = [error for live in members if (error := live.forecast.error.quantile(share)) is not None]
            if errors:
                metrics.forecast_error.labels(group, f"{share:g}").set(max(errors))
    for lane in lanes:
        metrics.queue_depth.labels(lane.id).set(lane.num_waiting)

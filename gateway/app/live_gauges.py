"""Gauges that are read when metrics are scraped: permits, queues and forecasts of the policy in force."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.deployments.live import LiveDeployment
from gateway.limits.lane import LiveLane
from gateway.telemetry.metrics import FORECAST_ERROR_SHARES, GatewayMetrics


def read_live_gauges(metrics: GatewayMetrics, deployments: Iterable[LiveDeployment], lanes: Iterable[LiveLane]) -> None:
    """Set the gauges anew; those of objects that left the policy are removed."""
    for gauge in (
        *(metrics.queue_depth, metrics.concurrency_limit, metrics.in_flight),
        *(metrics.deployment_ready, metrics.forecast_error),
    ):
        gauge.clear()
    for live in deployments:
        metrics.concurrency_limit.labels(live.id).set(live.limiter.limit)
        metrics.in_flight.labels(live.id).set(live.limiter.in_flight)
        metrics.deployment_ready.labels(live.id).set(live.is_ready)
        for share in FORECAST_ERROR_SHARES:
            error = live.forecast.error.quantile(share)
            if error is not None:
                metrics.forecast_error.labels(live.id, f"{share:g}").set(error)
    for lane in lanes:
        metrics.queue_depth.labels(lane.id).set(lane.total_waiting)

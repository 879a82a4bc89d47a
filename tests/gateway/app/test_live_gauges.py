"""Gauges of what is live: read anew at each scrape, and gone with what they were about."""

from __future__ import annotations

from gateway.app.live_gauges import read_live_gauges
from gateway.limits.permit import AdmissionRequest
from gateway.telemetry.metrics import GatewayMetrics
from tests.gateway.routing.fleet import fleet_policy, snapshot_of


def test_permits_and_readiness_are_those_of_the_moment() -> None:
    metrics, made = GatewayMetrics(), snapshot_of(fleet_policy(2, max_in_flight=5), lambda: 0.0)
    permit = made.deployments["d0"].limiter.try_acquire(AdmissionRequest(made.lanes["interactive"]))
    assert permit is not None
    made.deployments["d1"].is_ready = False
    read_live_gauges(metrics, made.deployments.values(), made.lanes.values())
    assert [metrics.in_flight.labels(name).value for name in ("d0", "d1")] == [1, 0]
    assert [metrics.deployment_ready.labels(name).value for name in ("d0", "d1")] == [1, 0]
    assert metrics.concurrency_limit.labels("d0").value == 5
    permit.release()


def test_what_left_the_policy_has_no_gauge_any_more() -> None:
    metrics = GatewayMetrics()
    before, after = (snapshot_of(fleet_policy(num), lambda: 0.0) for num in (3, 1))
    for made in (before, after):
        read_live_gauges(metrics, made.deployments.values(), made.lanes.values())
    assert [values for values, _ in metrics.in_flight.children()] == [("d0",)]


def test_an_error_of_forecasts_that_is_not_known_yet_is_no_zero() -> None:
    metrics, made = GatewayMetrics(), snapshot_of(fleet_policy(1), lambda: 0.0)
    read_live_gauges(metrics, made.deployments.values(), made.lanes.values())
    assert list(metrics.forecast_error.children()) == []

"""Metrics, log and traces of one process, put together from its settings."""

from __future__ import annotations

import io
import json
import random
from typing import Any

from gateway.app.observability import Observability, read_live_gauges
from gateway.app.runtime import Runtime
from gateway.config.sources import config_of
from gateway.limits.permit import AdmissionRequest
from gateway.store.shared_clock import SharedClock
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.records.record import RequestRecord
from gateway.timeline import Outcome, RequestIds
from gateway.util.workers import Workers
from tests.gateway.routing.fleet import fleet_policy, snapshot_of


class World:
    def __init__(self, **settings: Any) -> None:
        self._stream = io.BytesIO()
        self.metrics, self.seen = GatewayMetrics(), list[RequestRecord]()
        rng = random.Random(1)
        self.runtime = Runtime(
            holder="h",
            log=LogWriter(self._stream, wall_clock=lambda: 1.5),
            metrics=self.metrics,
            ids=RequestIds(rng),
            rng=rng,
            clock=lambda: 0.0,
            wall=SharedClock(lambda: 0.0),
            workers=Workers(1, name="test"),
        )
        config = config_of({path.replace("__", "."): value for path, value in settings.items()})
        self.watch = Observability(config, self.runtime, (self.seen.append,))

    def finish(self) -> RequestRecord:
        record = RequestRecord(self.runtime.ids.next(), 0.0)
        record.outcome, record.tenant = Outcome.COMPLETED, "shop"
        self.watch.recorder.record(record)
        return record

    def lines(self) -> list[dict[str, Any]]:
        self.runtime.log.flush()
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]


def test_without_a_collector_nothing_is_traced_and_everything_is_written() -> None:
    world = World()
    assert world.watch.tracing is None
    world.watch.start()
    record = world.finish()
    world.watch.close()
    assert [line["request_id"] for line in world.lines()] == [record.request_id]
    assert world.seen == [record]


def test_the_settings_of_the_log_reach_its_lines() -> None:
    world = World(telemetry__log__omit="tenant", telemetry__log__sample_ratio=1.0)
    world.finish()
    assert "tenant" not in world.lines()[0]
    silent = World(telemetry__log__sample_ratio=0.0)
    silent.finish()
    assert silent.lines() == []


def test_with_a_collector_finished_requests_go_to_the_traces_too() -> None:
    world = World(telemetry__trace__otlp_endpoint="http://127.0.0.1:9/v1/traces")
    assert world.watch.tracing is not None
    world.finish()
    assert len(world.watch.recorder.watchers) == 2


def test_what_fails_in_the_background_is_logged_by_its_name() -> None:
    world = World()
    world.runtime.note_failed_task("store_response", ValueError("disk full"))
    (line,) = world.lines()
    assert (line["event"], line["task"], line["level"]) == ("background_task_failed", "store_response", "error")
    assert "disk full" in line["error"]
    assert world.runtime.metrics.background_failures.labels("store_response").value == 1


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


def test_a_drained_deployment_is_not_ready_and_known_as_drained() -> None:
    metrics, made = GatewayMetrics(), snapshot_of(fleet_policy(2), lambda: 0.0)
    made.deployments["d1"].drain(is_draining=True)
    read_live_gauges(metrics, made.deployments.values(), made.lanes.values())
    assert [metrics.deployment_ready.labels(name).value for name in ("d0", "d1")] == [1, 0]
    assert [metrics.deployment_draining.labels(name).value for name in ("d0", "d1")] == [0, 1]


def test_a_deployment_of_members_is_drained_once_all_that_are_listed_are() -> None:
    metrics, made = GatewayMetrics(), snapshot_of(fleet_policy(3), lambda: 0.0)
    members = list(made.deployments.values())
    for live in members:
        live.group = "group"
    drained = []
    for live in members[:2]:
        live.drain(is_draining=True)
        read_live_gauges(metrics, members, ())
        drained.append(metrics.deployment_draining.labels("group").value)
    members[2].depart(has_left=True)
    read_live_gauges(metrics, members, ())
    assert [*drained, metrics.deployment_draining.labels("group").value] == [0, 0, 1]
    for live in members:
        live.depart(has_left=True)
    read_live_gauges(metrics, members, ())
    assert metrics.deployment_draining.labels("group").value == 0, "none is there to be drained"


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

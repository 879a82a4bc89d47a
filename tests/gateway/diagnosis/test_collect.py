"""Snapshots of a gateway and its engines, taken while requests are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.deployments.health.ejection import EjectionRules
from gateway.deployments.live import LiveDeployment
from gateway.diagnosis.collect import SampleCollector
from gateway.diagnosis.window import Window
from gateway.telemetry.lag import LagMeter
from gateway.telemetry.metrics import GatewayMetrics
from tests.gateway.admin.views.test_engine_facts import TEXT, Engine
from tests.gateway.routing.snapshots import ManualClock, snapshot_of


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    found = Engine()
    server = await asyncio.start_unix_server(found.serve, tmp_path / "a.sock")
    yield found
    server.close()


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[dict[str, LiveDeployment]]:
    made = dict(snapshot_of(TEXT.format(folder=tmp_path), EjectionRules()).deployments)
    yield made
    for one in made.values():
        await one.client.aclose()


def collector(live: dict[str, LiveDeployment], lag: LagMeter | None = None) -> SampleCollector:
    clock = ManualClock()
    clock.now = 7.0
    metrics = GatewayMetrics()
    return SampleCollector(metrics, live.values, lambda: lag, metrics.history(clock), clock)


async def test_a_snapshot_has_every_deployment_and_the_metrics_of_our_engines(
    engine: Engine, live: dict[str, LiveDeployment]
) -> None:
    found = await collector(live).snapshot()
    assert (found.at, found.late_s) == (7.0, 0.0)
    assert set(found.deployments) == {"a", "hosted"}
    assert set(found.engines) == {"a"}
    assert found.engines["a"].number("engine_preemptions_total") == 3.0
    assert found.deployments["a"].is_ready


async def test_an_engine_that_is_down_or_gives_no_metrics_is_left_out(
    engine: Engine, live: dict[str, LiveDeployment]
) -> None:
    engine.status = 404
    assert (await collector(live).snapshot()).engines == {}
    live["a"].is_ready = False
    found = await collector(live).snapshot()
    assert found.engines == {}
    assert not found.deployments["a"].is_ready
    assert engine.num_requested == 1, "one that is not ready is not asked"


async def test_the_delay_of_the_loop_is_part_of_it(live: dict[str, LiveDeployment]) -> None:
    live["a"].is_ready = False
    meter = LagMeter(asyncio.get_running_loop())
    meter.late_s = 0.75
    assert (await collector(live, meter).snapshot()).late_s == 0.75


async def test_a_window_is_several_snapshots_in_order(live: dict[str, LiveDeployment]) -> None:
    live["a"].is_ready = False
    found = await collector(live).watch(0.0)
    assert len(found.all) >= 2
    assert [one.at for one in found.all] == sorted(one.at for one in found.all)


async def test_the_baseline_ends_an_hour_ago_once_enough_was_served_by_then(live: dict[str, LiveDeployment]) -> None:
    for one in live.values():
        one.is_ready = False
    clock, metrics = ManualClock(), GatewayMetrics()
    clock.now = 7200.0
    history = metrics.history(clock)
    watcher = SampleCollector(metrics, live.values, lambda: None, history, clock)
    ttft = metrics.ttft.labels("a", "0-256", "miss")

    async def baseline_an_hour_after(num: int) -> Window:
        for _ in range(num):
            ttft.observe(0.1)
        for _ in range(735):  # readings of an hour ago are a minute apart
            clock.now += 5.0
            history.take()
        return await watcher.watch(0.0)

    assert not (await baseline_an_hour_after(19)).is_baseline_apart, "too few"
    await baseline_an_hour_after(1)
    for _ in range(500):
        ttft.observe(9.0)  # an incident
    window = await watcher.watch(0.0)
    assert window.is_baseline_apart
    found = window.spread_before("penstock_ttft_seconds", deployment="a")
    assert found.count == 20
    assert found.mean == pytest.approx(0.1)


async def test_what_operators_drained_is_known_as_such(live: dict[str, LiveDeployment]) -> None:
    live["a"].drain(is_draining=True)
    found = (await collector(live).snapshot()).deployments
    assert (found["a"].is_draining, found["hosted"].is_draining) == (True, False)


async def test_the_backoff_that_a_server_requested_is_part_of_it(live: dict[str, LiveDeployment]) -> None:
    live["a"].health.note_pushback(7.0, 30.0)
    found = (await collector(live).snapshot()).deployments
    assert found["a"].backoff_s > 0.0
    assert found["hosted"].backoff_s == 0.0

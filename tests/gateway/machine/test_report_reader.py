"""ReportReader: the control process reads every worker's report, and forgets the gauges of one that is gone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.admin.views.live_state import LiveState
from gateway.app.upstream_clients import open_upstream
from gateway.http.asgi import ASGIApp, Receive, Scope, Send, respond
from gateway.http.server import Listener, Server
from gateway.machine.machine_metrics import MachineMetrics
from gateway.machine.report_reader import ReportReader
from gateway.machine.reports import ReportApplication, WorkerReport, family_values
from gateway.telemetry.metrics import GatewayMetrics
from gateway.timeline import Outcome
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits

LABELS = ("route", "deployment", Outcome.COMPLETED)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@asynccontextmanager
async def worker(path: Path, app: ASGIApp) -> AsyncIterator[None]:
    """A worker's socket."""
    server = Server([Listener(name="reports", address=f"unix:{path}", app=app)], new_request_id=lambda: "id")
    await server.start()
    try:
        yield
    finally:
        await server.close()


def reporting(metrics: GatewayMetrics) -> ReportApplication:
    return ReportApplication(
        lambda: WorkerReport(
            life="a", values=family_values(metrics.instruments), live=LiveState(cache_entries=7), hits=[b"one"]
        )
    )


async def nonsense(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, 200, [], b"\xff")


async def test_a_report_that_cannot_be_added_is_reported_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Exception] = []
    target = Target.parse(f"unix:{tmp_path}/w1.sock")
    client = open_upstream(target, limits=PoolLimits(max_connections=2), clock=time.monotonic)
    metrics = MachineMetrics(GatewayMetrics())
    reader = ReportReader({1: client}, metrics, on_hits=lambda hits: None, on_failure=failures.append, clock=Clock())

    def refuse(column: int, report: WorkerReport) -> None:
        raise ValueError("of another version")

    async with worker(tmp_path / "w1.sock", reporting(GatewayMetrics())):
        with monkeypatch.context() as patched:
            patched.setattr(metrics, "take", refuse)
            await reader.refresh()
        assert [str(failure) for failure in failures] == ["of another version"]
        assert reader.live_states == ()
        await reader.refresh()
        assert len(reader.live_states) == 1
    await reader.aclose()


async def test_reads_all_workers_and_reports_what_it_cannot_read(tmp_path: Path) -> None:
    total, served = GatewayMetrics(), GatewayMetrics()
    served.requests.labels(*LABELS).inc(3)
    hits: list[bytes] = []
    failures: list[Exception] = []
    clients = {
        column: open_upstream(
            Target.parse(f"unix:{tmp_path}/w{column}.sock"), limits=PoolLimits(max_connections=2), clock=time.monotonic
        )
        for column in (1, 2, 3)
    }
    reader = ReportReader(
        clients, MachineMetrics(total), on_hits=hits.extend, on_failure=failures.append, clock=Clock()
    )
    async with (
        worker(tmp_path / "w1.sock", reporting(served)),
        worker(tmp_path / "w2.sock", nonsense),
    ):  # worker 3 has died
        await reader.refresh()
        assert total.requests.labels(*LABELS).value == 3
        assert [state.cache_entries for state in reader.live_states] == [7]
        assert hits == [b"one"]
        assert len(failures) == 1
        await reader.refresh()
        assert total.requests.labels(*LABELS).value == 3
    await reader.refresh()
    assert reader.live_states == ()
    assert total.requests.labels(*LABELS).value == 3
    await reader.aclose()

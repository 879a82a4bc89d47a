"""ReportReader: the control process reads every worker's report, and forgets the gauges of one that is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.admin.views.live_state import LiveState
from gateway.app.connections.upstream_clients import open_upstream
from gateway.http.asgi import ASGIApp, Message, Receive, Scope, Send, respond
from gateway.http.server import Listener, Server
from gateway.machine.machine_metrics import MachineMetrics
from gateway.machine.report_reader import ReportReader
from gateway.machine.reports import ReportApplication, WorkerReport, family_values
from gateway.telemetry.metrics import GatewayMetrics
from gateway.timeline import Outcome
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits

LABELS = ("route", "deployment", Outcome.COMPLETED)


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
    reader = ReportReader({1: client}, metrics, on_hits=lambda hits: None, on_failure=failures.append)

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
    reader = ReportReader(clients, MachineMetrics(total), on_hits=hits.extend, on_failure=failures.append)
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


async def test_what_was_counted_before_a_call_is_in_its_reading(tmp_path: Path) -> None:
    """A reading under way may have come to the worker earlier; neither it nor one just done is enough."""
    total, served = GatewayMetrics(), GatewayMetrics()
    was_read, may_answer = asyncio.Event(), asyncio.Event()
    report = reporting(served)

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        held: list[Message] = []

        async def hold(message: Message) -> None:
            held.append(message)

        await report(scope, receive, hold)
        was_read.set()
        await may_answer.wait()
        for message in held:
            await send(message)

    target = Target.parse(f"unix:{tmp_path}/w1.sock")
    client = open_upstream(target, limits=PoolLimits(max_connections=2), clock=time.monotonic)
    reader = ReportReader({1: client}, MachineMetrics(total), on_hits=lambda hits: None, on_failure=print)
    async with worker(tmp_path / "w1.sock", slow):
        early = asyncio.create_task(reader.refresh())
        await was_read.wait()
        served.requests.labels(*LABELS).inc(20)
        late = [asyncio.create_task(reader.refresh()) for _ in range(3)]
        await asyncio.sleep(0)
        may_answer.set()
        await early
        assert total.requests.labels(*LABELS).value == 0
        await asyncio.gather(*late)
        assert total.requests.labels(*LABELS).value == 20
        served.requests.labels(*LABELS).inc()
        await reader.refresh()
        assert total.requests.labels(*LABELS).value == 21
    await reader.aclose()

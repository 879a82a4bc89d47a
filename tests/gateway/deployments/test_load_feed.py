"""The load feed: what engines publish reaches their forecasts, and silence is forgotten."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, cast

import msgspec
import pytest

from gateway.deployments.live import LiveDeployment
from gateway.deployments.load_feed import (
    LOOK_INTERVAL_S,
    MAX_RETRY_S,
    METRICS_FRESH_S,
    METRICS_INTERVAL_S,
    SILENT_S,
    LoadFeeds,
)
from gateway.deployments.load_report import LaneReport, LoadReport
from gateway.routing.snapshot import SnapshotBuilder
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.errors import ConnectError
from gateway.upstreams.http1.pulse import Pulse
from gateway.upstreams.reach import UpstreamReach
from loadtests.simulation.virtual_loop import run_virtual
from routing_policies.loading import load_policy

ONE = "schema_version: 1\ndeployments: [{id: a, url: 'unix:/tmp/none.sock', model: m}]\n"
HOSTED = "schema_version: 1\ndeployments: [{id: a, url: 'https://api.example.com/v1', model: m}]\n"


class FakeFeed:
    """A response that states its events one after the other, `gap_s` apart, and then ends."""

    def __init__(self, events: list[bytes], *, status: int = 200, gap_s: float = 0.1) -> None:
        self.status = status
        self.is_events = status == 200
        self.headers = [(b"content-type", b"text/event-stream" if status == 200 else b"application/json")]
        self._events = events
        self._gap_s = gap_s

    async def chunks(self) -> AsyncIterator[bytes]:
        for event in self._events:
            yield event
            await asyncio.sleep(self._gap_s)

    async def read(self, _limit: int) -> bytes:
        return b"".join(self._events)

    async def __aenter__(self) -> FakeFeed:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class FakeClient:
    """Answers with what it is given, in order, then refuses; keeps when it was called."""

    def __init__(self, *answers: FakeFeed) -> None:
        self._answers = list(answers)
        self.requested_at: list[float] = []
        self.failure: Exception | None = None
        self.pulse = Pulse()

    async def send(self, *_: Any) -> FakeFeed:
        self.requested_at.append(asyncio.get_running_loop().time())
        if self.failure is not None:
            raise self.failure
        if not self._answers:
            raise ConnectError("nobody listens")
        return self._answers.pop(0)


def deployment(client: FakeClient, clock: Callable[[], float], text: str = ONE) -> LiveDeployment:
    def connect(name: str, reach: UpstreamReach) -> UpstreamClient:
        return cast(UpstreamClient, client)

    builder = SnapshotBuilder(clock=clock, rng=random.Random(1), environment={}, connect=connect)
    live = builder.build(load_policy(text, source="test"), "r1").deployments["a"]
    live.is_ready = True
    return live


def event(report: LoadReport) -> bytes:
    return b"data: " + msgspec.json.encode(report) + b"\n\n"


BUSY = LoadReport(num_running=7, lanes={"interactive": LaneReport(0.2, 1_000.0)})


async def listen(client: FakeClient, seconds: float, text: str = ONE) -> LiveDeployment:
    clock = asyncio.get_running_loop().time
    live = deployment(client, clock, text)
    task = asyncio.get_running_loop().create_task(LoadFeeds(lambda: (live,), clock).run())
    await asyncio.sleep(LOOK_INTERVAL_S + seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return live


def test_the_newest_report_is_what_the_forecast_goes_by() -> None:
    async def run() -> None:
        client = FakeClient(FakeFeed([event(LoadReport()), event(BUSY)], gap_s=1.0))
        live = await listen(client, 1.5)
        assert live.forecast.age_s(2.5) == 0.5
        assert live.forecast.num_seqs(2.2) == 7

    run_virtual(run())


def test_a_feed_that_ends_is_forgotten_and_requested_again() -> None:
    async def run() -> None:
        client = FakeClient(FakeFeed([event(BUSY)]), FakeFeed([event(BUSY)]))
        live = await listen(client, 0.3)
        assert live.forecast.age_s(1.3) == float("inf")
        client = FakeClient(FakeFeed([event(BUSY)]), FakeFeed([event(BUSY)]))
        await listen(client, 1.0)
        assert len(client.requested_at) == 2

    run_virtual(run())


def test_a_server_without_a_feed_is_left_alone_for_a_minute() -> None:
    async def run() -> None:
        client = FakeClient(*(FakeFeed([], status=404) for _ in range(4)))
        await listen(client, SILENT_S + 1)
        first = [LOOK_INTERVAL_S] * 2  # the feed, then the gauges
        assert client.requested_at == [*first, *(at + SILENT_S for at in first)]

    run_virtual(run())


def gauges(num_running: int) -> FakeFeed:
    page = FakeFeed([f'vllm:num_requests_running{{engine="0"}} {num_running}.0\n'.encode()])
    page.is_events = False
    return page


def test_the_gauges_of_another_engine_are_its_load() -> None:
    async def run() -> None:
        client = FakeClient(FakeFeed([], status=404), gauges(3), gauges(5))
        live = await listen(client, METRICS_INTERVAL_S + 0.1)
        now = asyncio.get_running_loop().time()
        assert live.forecast.num_seqs(now) == 5
        assert live.forecast.num_seqs(now + METRICS_FRESH_S) == 0
        assert live.is_ready, "gauges say nothing about readiness"

    run_virtual(run())


def test_an_engine_whose_gauges_are_gone_is_left_alone_like_any_other() -> None:
    async def run() -> None:
        client = FakeClient(FakeFeed([], status=404), gauges(3), FakeFeed([], status=404))
        live = await listen(client, SILENT_S)
        assert client.requested_at == [LOOK_INTERVAL_S, LOOK_INTERVAL_S, LOOK_INTERVAL_S + METRICS_INTERVAL_S]
        assert live.forecast.num_seqs(asyncio.get_running_loop().time()) == 0

    run_virtual(run())


def test_an_engine_that_restarts_is_read_again_soon() -> None:
    async def run() -> None:
        client = FakeClient(FakeFeed([], status=404), gauges(3))  # then nobody listens
        await listen(client, 30.0)
        assert len(client.requested_at) > 5

    run_virtual(run())


def test_who_does_not_answer_is_called_ever_more_rarely() -> None:
    async def run() -> None:
        client = FakeClient()
        await listen(client, 100.0)
        gaps = [after - before for before, after in zip(client.requested_at, client.requested_at[1:], strict=False)]
        assert gaps[:4] == [1.0, 2.0, 4.0, 8.0]
        assert max(gaps) == MAX_RETRY_S

    run_virtual(run())


def test_nonsense_is_ignored_and_the_feed_goes_on() -> None:
    async def run() -> None:
        pieces = [b"data: {not json}\n\n", b"data: []\n\n: comment\n\n", event(BUSY)]
        live = await listen(FakeClient(FakeFeed(pieces, gap_s=1.0)), 2.5)
        assert live.forecast.num_seqs(3.5) == 7

    run_virtual(run())


def test_an_api_under_a_path_is_somebody_elses_server_and_is_not_called() -> None:
    async def run() -> None:
        client = FakeClient()
        await listen(client, 10.0, HOSTED)
        assert client.requested_at == []

    run_virtual(run())


def test_the_listener_ends_when_the_deployment_leaves_the_policy() -> None:
    async def run() -> None:
        clock = asyncio.get_running_loop().time
        client = FakeClient()
        current = [deployment(client, clock)]
        task = asyncio.get_running_loop().create_task(LoadFeeds(lambda: current, clock).run())
        await asyncio.sleep(2.0)
        current.clear()
        await asyncio.sleep(1.0)
        num_sent = len(client.requested_at)
        await asyncio.sleep(60.0)
        assert len(client.requested_at) == num_sent
        task.cancel()

    run_virtual(run())


def test_an_engine_that_states_it_starts_anew_is_not_ready_from_that_moment() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        live = await listen(FakeClient(FakeFeed([event(BUSY)])), 0.05)
        assert live.is_ready
        assert live.ready_in_s(loop.time()) is None
        live = await listen(FakeClient(FakeFeed([event(BUSY), event(LoadReport(state="down"))])), 0.15)
        assert not live.is_ready
        assert live.ready_in_s(loop.time()) is not None

    run_virtual(run())


def test_an_engine_that_states_it_computes_is_alive_and_one_that_stands_still_is_not() -> None:
    async def run() -> None:
        moving = FakeFeed([event(LoadReport(num_running=1, silent_s=0.02))] * 5)
        live = await listen(FakeClient(moving), 0.35)
        assert live.health.idle_s(asyncio.get_running_loop().time()) < 0.2

        stopped = FakeFeed([event(LoadReport(num_running=1, silent_s=2.0 + n / 10)) for n in range(5)])
        live = await listen(FakeClient(stopped), 0.35)
        assert not live.health.has_answered

    run_virtual(run())


def test_a_listener_that_fails_unexpectedly_ends_the_run_and_the_next_run_listens_again() -> None:
    async def run() -> None:
        client = FakeClient(FakeFeed([b"data: 1\n\n"]), FakeFeed([event(BUSY)], gap_s=5.0))
        client.failure = ZeroDivisionError("a bug")
        clock = asyncio.get_running_loop().time
        live = deployment(client, clock)
        feeds = LoadFeeds(lambda: (live,), clock)
        with pytest.raises(ZeroDivisionError):
            await feeds.run()
        client.failure = None
        task = asyncio.get_running_loop().create_task(feeds.run())
        await asyncio.sleep(2 * LOOK_INTERVAL_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(client.requested_at) >= 2

    run_virtual(run())

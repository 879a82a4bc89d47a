"""WaitingRoom: requests wait for a deployment to start, within the bounds of their lane and their own time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.admission.waiting_room import WaitingRoom
from gateway.deployments.starting import FIRST_START_S, StartReport
from gateway.errors import Shed
from gateway.limits.permit import AdmissionRequest
from gateway.routing.planned_route import PlannedRoute
from loadtests.simulation.virtual_loop import run_virtual
from tests.gateway.routing.fleet import fleet_policy, snapshot_of

LANES = "lanes: [{id: interactive, max_queue: 4}]\n"
STARTING = StartReport("starting")


class Scene:
    """Two deployments that start, and report it five times a second."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.ends: list[tuple[str, str]] = []
        self.room = WaitingRoom(self.loop.time, lambda route, end: self.ends.append((route, end)))
        self.made = snapshot_of(LANES + fleet_policy(2), self.loop.time)
        self.lane = self.made.lanes["interactive"]
        self.planned: PlannedRoute = self.made.router.match("auto", None, {})
        self.report = STARTING
        for live in self.made.deployments.values():
            live.is_ready = False
        self._probing = self.loop.create_task(self._probe())

    async def _probe(self) -> None:
        while True:
            for live in self.made.deployments.values():
                if not live.is_ready:
                    live.starting.note_waiting(self.loop.time(), self.report)
            self.room.wake()
            await asyncio.sleep(0.2)

    def ready_at(self, seconds: float) -> None:
        def make_ready() -> None:
            self.made.deployments["d1"].is_ready = True

        self.loop.call_at(seconds, make_ready)

    async def wait(self, **admission_request: float | bool) -> str:
        """`went` after a wait, `stayed` without one, or why it was refused."""
        try:
            has_waited = await self.room.until_ready(
                self.planned, AdmissionRequest(self.lane, "t", **admission_request)
            )  # type: ignore[arg-type]
        except Shed as shed:
            return f"{shed.reason} {shed.retry_after_s:.1f}"
        return "went" if has_waited else "stayed"


def scene(act: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        made = Scene()
        await asyncio.sleep(0)  # the first probe
        await act(made)
        assert made.lane.num_waiting == 0

    run_virtual(main())


def test_those_that_have_the_time_go_on_as_soon_as_anybody_is_ready() -> None:
    async def act(made: Scene) -> None:
        made.ready_at(3.0)
        assert set(await asyncio.gather(made.wait(), made.wait(deadline_at=30.0))) == {"went"}
        assert 3.0 <= made.loop.time() <= 3.3
        assert made.ends == [("r", "ready")] * 2

    scene(act)


def test_where_somebody_is_ready_or_nobody_starts_nobody_waits() -> None:
    async def act(made: Scene) -> None:
        made.made.deployments["d0"].is_ready = True
        assert await made.wait() == "stayed"
        made.made.deployments["d0"].is_ready = False
        made.report = StartReport("stopped")
        await asyncio.sleep(0.2)
        assert await made.wait() == "stayed"
        assert made.ends == []

    scene(act)


def test_who_cannot_wait_so_long_is_refused_at_once_with_the_time_of_the_start() -> None:
    async def act(made: Scene) -> None:
        assert await made.wait(deadline_at=FIRST_START_S - 1) == f"overload {FIRST_START_S:.1f}"
        assert await made.wait(ttft_by=5.0, deadline_at=60.0) == f"overload {FIRST_START_S:.1f}"
        assert await made.wait(deadline_at=FIRST_START_S + 1, service_s=2.0) == f"overload {FIRST_START_S:.1f}"
        assert made.loop.time() == 0.0
        assert {end for _, end in made.ends} == {"late"}

    scene(act)


def test_a_start_that_takes_too_long_is_not_waited_for_to_the_bitter_end() -> None:
    async def act(made: Scene) -> None:
        refused = await made.wait(deadline_at=14.0)
        assert refused.startswith("overload ")
        assert 10.0 < made.loop.time() < 13.0, "two seconds late is forecast to be two more: that is over the deadline"

    scene(act)


def test_the_lanes_queue_bounds_how_many_wait_and_retries_are_refused_first() -> None:
    async def act(made: Scene) -> None:
        made.ready_at(2.0)
        first = [asyncio.create_task(made.wait()) for _ in range(2)]
        await asyncio.sleep(0)
        assert made.lane.num_waiting == 2
        assert (await made.wait(is_retry=True)).startswith("queue_full")
        more = [asyncio.create_task(made.wait()) for _ in range(2)]
        await asyncio.sleep(0)
        assert (await made.wait()).startswith("queue_full")
        assert await asyncio.gather(*first, *more) == ["went"] * 4

    scene(act)


def test_when_nobody_starts_any_more_those_that_wait_are_released() -> None:
    async def act(made: Scene) -> None:
        waiting = asyncio.create_task(made.wait())
        await asyncio.sleep(1.0)
        made.report = StartReport("stopped")
        assert await waiting == "went"
        assert made.loop.time() < 1.5
        assert made.ends == [("r", "lost")]

    scene(act)


def test_deployments_that_nobody_calls_any_more_are_not_waited_for() -> None:
    async def act(made: Scene) -> None:
        waiting = asyncio.create_task(made.wait())
        await asyncio.sleep(1.0)
        made._probing.cancel()  # as when a new policy no longer has them
        assert await waiting == "went"
        assert made.loop.time() < 5.0

    scene(act)


def test_who_leaves_gives_its_place_back() -> None:
    async def act(made: Scene) -> None:
        waiting = asyncio.create_task(made.wait())
        await asyncio.sleep(0.5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert made.ends == [("r", "left")]

    scene(act)

"""Standbys: loaded while a core serves, taking over at once when it is lost, replaced, and ended with the front."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.frontend.core_client.link import CoreLink
from engine.frontend.core_client.live_core import CoreProcess, CoreStarts, Spawn
from engine.frontend.core_client.metrics import EngineMetrics
from engine.frontend.core_client.queue_guard import QueueLimits
from engine.frontend.core_client.standby_pool import StandbyPool
from engine.frontend.core_client.supervisor import CoreSupervisor, Patience
from engine.protocol import Compiling, Phase, StandingBy
from tests.engine.frontend.fake_core import FakeCore, FakeCores

PATIENCE = Patience(first_pause_s=5.0, longest_pause_s=5.0, stop_s=0.3, connect_s=1.0)


class Standbys(FakeCores):
    """Fake standbys that have loaded at once, or say nothing."""

    loads = True

    async def spawn(self, path: Path) -> FakeCore:
        """What the pool calls."""
        core = await super().spawn(path)
        if not self.loads:
            return core
        core.announce(Phase(name="import", seconds=1.5))
        core.announce(Phase(name="weights", seconds=2.5))
        core.announce(StandingBy())
        return core


class Supervised:
    """A supervisor with fake cores and standbys."""

    def __init__(self, size: int) -> None:
        self.metrics = EngineMetrics()
        self.link = CoreLink(self.metrics, time.monotonic, QueueLimits(max_waiting=64))
        self.cores, self.standbys = FakeCores(), Standbys(starts_up=False)
        self.crashes: list[str] = []
        """Crashes of the compiler that the pool has reported."""
        self.pool = self.make_pool(self.standbys.spawn, size, pause_s=0.02)
        self.supervisor = CoreSupervisor(self.link, CoreStarts(self.cores.spawn), time.monotonic, PATIENCE, self.pool)

    def make_pool(self, spawn: Spawn, size: int, *, pause_s: float) -> StandbyPool:
        return StandbyPool(
            self.link,
            spawn,
            size,
            avoid_compiled_code=self.crashes.append,
            start_s=1.0,
            stop_s=0.3,
            pause_s=pause_s,
        )

    async def until_idle(self, count: int) -> None:
        while self.pool.num_idle != count:
            await asyncio.sleep(0.002)

    async def until_state(self, state: str) -> None:
        while self.link.state != state:
            await asyncio.sleep(0.002)


@asynccontextmanager
async def supervised(size: int = 1) -> AsyncIterator[Supervised]:
    made = Supervised(size)
    running = asyncio.create_task(made.supervisor.run())
    try:
        async with asyncio.timeout(5):
            yield made
    finally:
        made.supervisor.stop()
        await asyncio.wait_for(running, 5)
        await made.cores.close()
        await made.standbys.close()


async def test_a_standby_takes_over_without_a_pause_and_another_is_loaded() -> None:
    async with supervised() as made:
        core = await made.cores.next()
        await made.until_idle(1)
        standby = await made.standbys.next()
        core.die()
        assert (await standby.takes_over.get()).num_blocks == 100  # the pool of the core before it
        assert made.link.state == "starting"
        assert [phase.name for phase in made.link.phases] == ["import", "weights"]
        standby.start_up()
        await made.until_state("ready")
        assert made.link.phases[-1].name == "recovery"
        assert made.link.phases[-1].seconds < 4.0  # the pause alone is longer
        await made.until_idle(1)
        assert len(made.standbys.started) == 2
        assert len(made.cores.started) == 1


async def test_standbys_wait_until_a_core_serves() -> None:
    async with supervised(size=2) as made:
        made.cores.starts_up = False
        core = await made.cores.next()
        await asyncio.sleep(0.02)
        if made.link.state != "ready":
            assert not made.standbys.started
            core.start_up()
        await made.until_idle(2)


async def test_a_standby_that_dies_is_replaced_and_never_taken() -> None:
    async with supervised() as made:
        await made.cores.next()
        await made.until_idle(1)
        first = await made.standbys.next()
        first.die()
        await made.standbys.next()
        await made.until_idle(1)
        assert made.link.state == "ready"
        assert first.takes_over.empty()


@pytest.mark.parametrize(
    ("compiled", "status", "crashes"),
    [
        (["numba", "", "lead"], -4, ["SIGILL ended the last core while it compiled lead"]),
        (["lead"], -9, []),  # out of memory, or ended by a person
        (["lead"], 1, []),
        (["lead", ""], -11, []),
        ([], -4, []),
    ],
)
async def test_only_a_crash_while_a_standby_compiles_makes_later_cores_compile_nothing(
    compiled: list[str], status: int, crashes: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with supervised() as made:
        made.standbys.loads = False
        await made.cores.next()
        standby = await made.standbys.next()
        for what in compiled:
            standby.announce(Compiling(what))
        standby.die_after_its_frames(status)
        made.standbys.loads = True
        await made.until_idle(1)  # the next one

        assert made.crashes == crashes
        assert f"a standby was lost: {(crashes or ['it ended'])[0]}" in caplog.messages
        assert len(made.standbys.started) == 2
        assert made.link.state == "ready"


async def test_what_a_standby_states_before_it_is_needed_concerns_nobody() -> None:
    async with supervised() as made:
        await made.cores.next()
        await made.until_idle(1)
        assert made.link.state == "ready"
        assert [phase.name for phase in made.link.phases] == ["import", "weights"]
        assert made.link.phases[0].seconds == 0.5


async def test_a_standby_that_cannot_be_started_is_tried_again_and_the_core_serves_on() -> None:
    made = Supervised(1)
    starts = 0

    async def spawn(_path: Path) -> CoreProcess:
        nonlocal starts
        starts += 1
        raise FileNotFoundError("no interpreter")

    pool = made.make_pool(spawn, 1, pause_s=0.005)
    supervisor = CoreSupervisor(made.link, CoreStarts(made.cores.spawn), time.monotonic, PATIENCE, pool)
    running = asyncio.create_task(supervisor.run())
    await made.cores.next()
    async with asyncio.timeout(5):
        while starts < 3:
            await asyncio.sleep(0.002)
    assert made.link.state == "ready"
    supervisor.stop()
    await asyncio.wait_for(running, 5)
    await made.cores.close()


async def test_standbys_end_with_the_front() -> None:
    async with supervised(size=2) as made:
        await made.cores.next()
        await made.until_idle(2)
    assert all(core.was_pushed for core in made.standbys.started)

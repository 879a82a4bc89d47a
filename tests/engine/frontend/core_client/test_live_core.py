"""One core process, from its start to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.frontend.core_client.live_core import CoreProcess, LiveCore
from engine.protocol import Phase
from tests.engine.frontend.core_client.test_link import Listener
from tests.engine.frontend.fake_core import FakeCore, FakeCores


async def started(cores: FakeCores, listener: Listener) -> tuple[LiveCore, FakeCore]:
    live = await LiveCore.start(cores.spawn, listener)
    await asyncio.wait_for(live.connection.connected.wait(), 5)
    return live, cores.started[-1]


async def test_a_core_connects_over_a_socket_that_is_gone_once_it_is_sealed() -> None:
    cores, listener, paths = FakeCores(starts_up=False), Listener(), list[Path]()

    async def spawn(path: Path) -> CoreProcess:
        paths.append(path)
        return await cores.spawn(path)

    live = await LiveCore.start(spawn, listener)
    await asyncio.wait_for(live.connection.connected.wait(), 5)
    assert paths[0].parent.stat().st_mode & 0o077 == 0
    live.seal()
    assert not paths[0].parent.exists()
    cores.started[0].announce(Phase(name="import", seconds=0.5))
    while not listener.messages:
        await asyncio.sleep(0)
    assert listener.messages == [Phase(name="import", seconds=0.5)]
    await live.end(is_polite=False, stop_s=5.0)
    await cores.close()


async def test_a_process_that_cannot_start_leaves_no_files() -> None:
    paths: list[Path] = []

    async def spawn(path: Path) -> CoreProcess:
        paths.append(path)
        raise FileNotFoundError("no interpreter")

    with pytest.raises(FileNotFoundError):
        await LiveCore.start(spawn, Listener())
    assert not paths[0].parent.exists()


async def test_a_core_that_follows_is_waited_for_and_one_that_does_not_is_pushed() -> None:
    cores = FakeCores(starts_up=False)
    live, core = await started(cores, Listener())
    statuses = [live.status]
    asyncio.get_running_loop().call_soon(core.die, 0)
    await live.end(is_polite=True, stop_s=5.0)
    assert ([*statuses, live.status], core.was_pushed) == ([None, 0], False)

    live, core = await started(cores, Listener())
    await live.end(is_polite=True, stop_s=0.01)
    assert (live.status, core.was_pushed) == (-15, True)
    await cores.close()


async def test_without_a_stop_request_a_core_is_ended_at_once() -> None:
    cores = FakeCores(starts_up=False)
    live, core = await started(cores, Listener())
    await asyncio.wait_for(live.end(is_polite=False, stop_s=60.0), 5)
    assert core.was_pushed
    await cores.close()

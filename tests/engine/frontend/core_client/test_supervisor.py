"""Starting cores: pauses that grow, and real processes."""

from __future__ import annotations

import asyncio
import itertools
import sys
import textwrap
import time
from pathlib import Path

import pytest

from engine.config import CoreConfig, EngineConfigError
from engine.frontend.core_client.link import CoreLink
from engine.frontend.core_client.live_core import CoreProcess, CoreStarts
from engine.frontend.core_client.metrics import EngineMetrics
from engine.frontend.core_client.queue_guard import QueueLimits
from engine.frontend.core_client.supervisor import CoreSpawner, CoreSupervisor, Patience
from engine.protocol import Compiling, Fatal
from tests.engine.frontend.fake_core import FakeCores

PATIENCE = Patience(first_pause_s=0.01, longest_pause_s=0.04, stop_s=0.3, connect_s=0.2)


def link() -> CoreLink:
    return CoreLink(EngineMetrics(), time.monotonic, QueueLimits(max_waiting=64))


async def test_a_core_that_cannot_be_started_is_tried_again_with_growing_pauses() -> None:
    starts: list[float] = []

    async def spawn(_path: Path) -> CoreProcess:
        starts.append(time.monotonic())
        raise FileNotFoundError("no interpreter")

    core_link = link()
    supervisor = CoreSupervisor(core_link, CoreStarts(spawn), time.monotonic, PATIENCE)
    running = asyncio.create_task(supervisor.run())
    while len(starts) < 5:
        await asyncio.sleep(0.005)
    supervisor.stop()
    await asyncio.wait_for(running, 2)
    pauses = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert pauses[0] >= 0.01
    assert pauses[1] >= 0.02
    assert all(pause >= 0.04 for pause in pauses[2:4])


async def test_a_core_that_never_connects_is_ended() -> None:
    class Silent:
        def __init__(self) -> None:
            self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def wait(self) -> int:
            return await asyncio.shield(self.exited)

        def terminate(self) -> None:
            self.exited.set_result(-15)

        def kill(self) -> None:
            raise AssertionError("terminate was enough")

    spawned: list[Silent] = []

    async def spawn(_path: Path) -> CoreProcess:
        spawned.append(Silent())
        return spawned[-1]

    core_link = link()
    supervisor = CoreSupervisor(core_link, CoreStarts(spawn), time.monotonic, PATIENCE)
    running = asyncio.create_task(supervisor.run())
    while not core_link.failure:
        await asyncio.sleep(0.005)
    assert core_link.failure == "it did not connect within 0 s"
    assert spawned[0].exited.done()
    supervisor.stop()
    await asyncio.wait_for(running, 2)


async def test_settings_that_no_core_can_serve_with_end_it() -> None:
    core_link, cores = link(), FakeCores(starts_up=False)
    supervisor = CoreSupervisor(core_link, CoreStarts(cores.spawn), time.monotonic, PATIENCE)
    running = asyncio.create_task(supervisor.run())
    core = await cores.next()
    core.announce(Fatal(message="config.json: model_type: 'x' is not supported", is_settings=True))
    while not core_link.fatal:
        await asyncio.sleep(0.005)
    core.die()

    with pytest.raises(EngineConfigError, match="'x' is not supported"):
        await asyncio.wait_for(running, 2)

    assert supervisor.num_starts == 1
    await cores.close()


async def test_settings_that_a_core_has_served_with_are_tried_again() -> None:
    core_link, cores = link(), FakeCores()
    supervisor = CoreSupervisor(core_link, CoreStarts(cores.spawn), time.monotonic, PATIENCE)
    running = asyncio.create_task(supervisor.run())
    core = await cores.next()
    while core_link.state != "ready":
        await asyncio.sleep(0.005)
    core.announce(Fatal(message="num_blocks: do not fit", is_settings=True))
    while not core_link.fatal:
        await asyncio.sleep(0.005)
    core.die()

    await cores.next()

    supervisor.stop()
    await asyncio.wait_for(running, 2)
    await cores.close()


@pytest.mark.parametrize(
    ("compiled", "status", "crashes"),
    [
        (["numba", "", "find_drafts"], -4, ["SIGILL ended the last core while it compiled find_drafts"]),
        (["numba"], -11, ["SIGSEGV ended the last core while it compiled numba"]),
        (["find_drafts"], -9, []),  # out of memory, or ended by a person
        (["find_drafts"], 1, []),
        (["find_drafts", ""], -11, []),
        ([], -4, []),
    ],
)
async def test_only_a_crash_while_the_core_compiles_makes_others_compile_nothing(
    compiled: list[str], status: int, crashes: list[str]
) -> None:
    found: list[str] = []
    core_link, cores = link(), FakeCores(starts_up=False)
    starts = CoreStarts(cores.spawn, avoid_compiled_code=found.append)
    supervisor = CoreSupervisor(core_link, starts, time.monotonic, PATIENCE)
    running = asyncio.create_task(supervisor.run())
    core = await cores.next()
    for what in compiled:
        core.announce(Compiling(what))
    core.die_after_its_frames(status)

    await cores.next()  # which has reported nothing that it compiles
    assert found == crashes
    assert not core_link.compiling

    supervisor.stop()
    await asyncio.wait_for(running, 2)
    await cores.close()


async def test_later_cores_get_the_crash_of_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text('#!/bin/sh\nfor last; do :; done\necho "$last" > "$0.given"\n')
    stand_in.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    spawner = CoreSpawner(CoreConfig.of(model_dir=Path("/models/tiny")))
    spawner.avoid_compiled_code("SIGILL ended the last core while it compiled numba")

    for spawn in (spawner.serving, spawner.standby):
        process = await spawn(tmp_path / "core.sock")
        assert await process.wait() == 0
        given = tmp_path / "python.given"
        assert given.read_text() == "SIGILL ended the last core while it compiled numba\n"
        given.unlink()


async def test_the_socket_is_private_and_gone_once_the_core_is_connected() -> None:
    paths: list[Path] = []
    cores = FakeCores()

    async def spawn(path: Path) -> CoreProcess:
        paths.append(path)
        assert path.parent.stat().st_mode & 0o777 == 0o700
        return await cores.spawn(path)

    core_link = link()
    supervisor = CoreSupervisor(core_link, CoreStarts(spawn), time.monotonic, PATIENCE)
    running = asyncio.create_task(supervisor.run())
    await cores.next()
    while core_link.state != "ready" or paths[0].parent.exists():
        await asyncio.sleep(0.005)
    supervisor.stop()
    await asyncio.wait_for(running, 2)
    await cores.close()


async def test_a_real_process_gets_its_socket_and_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(
        textwrap.dedent(f"""\
            #!{sys.executable}
            import json, socket, sys
            names = dict(zip(sys.argv[3::2], sys.argv[4::2]))
            assert sys.argv[1:3] == ["-m", "engine.core"]
            assert json.loads(names["--config"])["model_dir"] == "/models/tiny"
            core = socket.socket(socket.AF_UNIX)
            core.connect(names["--socket"])
            core.recv(100)
            """)
    )
    stand_in.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    core_link = link()
    spawn = CoreSpawner(CoreConfig.of(model_dir=Path("/models/tiny"))).serving
    supervisor = CoreSupervisor(core_link, CoreStarts(spawn), time.monotonic, Patience(first_pause_s=5, stop_s=2))
    running = asyncio.create_task(supervisor.run())
    while core_link._transport is None:
        assert not core_link.failure
        await asyncio.sleep(0.01)
    supervisor.stop()
    await asyncio.wait_for(running, 5)

"""WorkersSupervisor: start in order, void what a dead process counted, stop in order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.app.supervision import supervised_workers
from gateway.cli.supervisor.child import ChildSpec
from gateway.cli.workers.plan import WorkersPlan, plan_workers
from gateway.cli.workers.workers_supervisor import WorkersSupervisor
from gateway.config.sources import config_of
from gateway.machine.shared_counts import CountsRow, SharedCounts
from gateway.telemetry.logs.log import LogWriter

_PROCESS = """
import socket, sys, time
name, channel, how = sys.argv[1], socket.socket(fileno=int(sys.argv[2])), sys.argv[3]
def note(what):
    with open(sys.argv[4], "a") as log:
        log.write(f"{name} {what}\\n")
note("loaded")
if how == "bad":
    sys.exit(2)
if name != "control":
    channel.recv(1)
channel.send(b"r")
note("ready")
import signal
signal.signal(signal.SIGHUP, lambda *_: note("reloaded"))
def end(*_):
    if name == "control":
        while channel.recv(1):
            pass
    note("ended")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
while True:
    time.sleep(0.05)
"""


@contextmanager
def planned(folder: Path, how: str = "good") -> Iterator[WorkersPlan]:
    """A plan whose processes only note what happens to them."""
    config = config_of({"process.runtime_dir": folder, "public.listen": "127.0.0.1:0", "admin.listen": "127.0.0.1:0"})
    with plan_workers(config, 2) as plan:
        for listening in plan.public.sockets:
            listening.setblocking(False)

        def scripted(spec: ChildSpec, column: int) -> ChildSpec:
            channel = plan.channels[column].workers.fileno()
            argv = (sys.executable, "-c", _PROCESS, spec.name, str(channel), how, str(folder / "notes"))
            return replace(spec, argv=argv, env=None)

        yield replace(
            plan,
            control=scripted(plan.control, 0),
            workers=tuple(scripted(spec, column) for column, spec in enumerate(plan.workers, start=1)),
        )


def notes(folder: Path) -> list[str]:
    path = folder / "notes"
    return path.read_text().splitlines() if path.exists() else []


async def until(folder: Path, *wanted: str) -> None:
    async with asyncio.timeout(20):
        while not set(wanted) <= set(notes(folder)):
            await asyncio.sleep(0.02)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    with (tmp_path / "log").open("wb") as stream:
        yield LogWriter(stream)


def ready(supervisor: WorkersSupervisor) -> set[int]:
    return supervisor._ready


async def test_the_control_process_is_ready_first_and_ends_last(tmp_path: Path, log: LogWriter) -> None:
    with planned(tmp_path) as plan:
        supervisor = supervised_workers(plan, log)
        running = asyncio.create_task(supervisor.run())
        await until(tmp_path, "worker-1 ready", "worker-2 ready")
        supervisor.reload()
        await until(tmp_path, *(f"{name} reloaded" for name in ("control", "worker-1", "worker-2")))
        supervisor.stop()
        assert await running == 0
    found = notes(tmp_path)
    assert found.index("control ready") < min(found.index(f"worker-{number} ready") for number in (1, 2))
    assert found[-1] == "control ended"


async def test_a_dead_workers_counts_are_void_and_it_starts_again(tmp_path: Path, log: LogWriter) -> None:
    with planned(tmp_path) as plan:
        supervisor = supervised_workers(plan, log)
        running = asyncio.create_task(supervisor.run())
        await until(tmp_path, "worker-1 ready", "worker-2 ready")
        table = plan.counts.descriptor
        dead, other = (
            CountsRow(SharedCounts(table, num_columns=plan.counts.num_columns, column=column), "deployment a")
            for column in (1, 2)
        )
        dead.held[dead.column] += 3
        other.held[other.column] += 1
        process = supervisor._children[1]._process
        assert process is not None
        process.kill()
        async with asyncio.timeout(20):
            while notes(tmp_path).count("worker-1 ready") < 2:
                await asyncio.sleep(0.02)
        assert other.num_held == 1
        async with asyncio.timeout(5):
            while ready(supervisor) != {0, 1, 2}:
                await asyncio.sleep(0.02)
        supervisor.stop()
        assert await running == 0


async def test_wrong_settings_end_everything_with_their_code(tmp_path: Path, log: LogWriter) -> None:
    with planned(tmp_path, "bad") as plan:
        assert await asyncio.wait_for(supervised_workers(plan, log).run(), 20) == 2

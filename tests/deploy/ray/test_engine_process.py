"""The engine's process: it starts, reports, ends with its owner, and says why it does not start."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.ray.engine_process import EngineDied, EngineProcess

ROOT = Path(__file__).parents[3]
FLAGS = ("--model=penstock-small", "--num-threads=1", "--no-compiled-steps", "--kv-memory-bytes=33554432")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


async def test_an_engine_serves_until_it_is_stopped() -> None:
    engine = EngineProcess(FLAGS, drain_timeout_s=2.0)
    await engine.start(60.0)
    try:
        engine.check()
        report = await engine.report()
        assert (report.num_running, report.num_waiting, report.max_num_seqs > 0) == (0, 0, True)
        answer = await engine.client.get("/v1/models")
        assert [one["id"] for one in answer.json()["data"]] == ["penstock-small"]
    finally:
        await engine.stop()
    with pytest.raises(EngineDied, match="status 0"):
        engine.check()


async def test_an_engine_that_cannot_start_is_an_error() -> None:
    engine = EngineProcess(("--model=/no/such/model",), drain_timeout_s=1.0)
    with pytest.raises(EngineDied, match="status 2"):
        await engine.start(60.0)


def test_an_engine_and_its_core_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    address = tmp_path / "engine.sock"
    script = "import os, subprocess, sys, time\n" + (
        "child = subprocess.Popen([sys.executable, '-m', 'deploy.ray.engine_child', str(os.getpid()), *sys.argv[1:]])\n"
        "print(child.pid, flush=True)\ntime.sleep(60)\n"
    )
    flags = (*FLAGS, f"--listen=unix:{address}")
    with subprocess.Popen([sys.executable, "-c", script, *flags], stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout is not None
        engine = int(owner.stdout.readline())
        wait_until(lambda: is_listening(address), 60.0)
        wait_until(lambda: bool(children(engine)), 20.0)  # the core is a process of its own
        processes = [engine, *children(engine)]
        owner.kill()
    wait_until(lambda: not any(map(is_alive, processes)), 20.0)


def wait_until(is_so: Callable[[], bool], limit_s: float) -> None:
    """Wait for a condition of other processes."""
    ends_at = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < ends_at, "the condition does not come true"
        time.sleep(0.05)


def is_listening(address: Path) -> bool:
    """Whether an engine accepts connections on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(address)) == 0


def children(pid: int) -> list[int]:
    """Processes that a process started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

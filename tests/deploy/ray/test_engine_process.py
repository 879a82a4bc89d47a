"""The engine's process: it starts, reports, ends with its owner, and says why it does not start."""

from __future__ import annotations

import subprocess
import sys
import time
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


def test_an_engine_ends_when_its_owner_is_killed() -> None:
    script = "import os, subprocess, sys, time\n" + (
        "child = subprocess.Popen([sys.executable, '-m', 'deploy.ray.engine_child', str(os.getpid()), '--model="
        "penstock-small', '--listen=127.0.0.1:0', '--num-threads=1', '--no-compiled-steps'])\n"
        "print(child.pid, flush=True)\ntime.sleep(60)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    ends_at = time.monotonic() + 20.0
    while is_alive(child):
        assert time.monotonic() < ends_at, "the engine outlives its owner"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

"""`penstock up` as a process, in front of engines that are already there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.faults.processes import ROOT, START_TIMEOUT_S

_PUBLIC = re.compile(r"curl http://127\.0\.0\.1:(\d+)/v1")
_ADMIN = re.compile(r"admin on 127\.0\.0\.1:(\d+);")
POLICY = """\
schema_version: 1
deployments: [{{id: only, url: "unix:{engine}", model: tiny, limits: {{max_in_flight: 1000}}}}]
"""


class UpProcess:
    """One running `penstock up`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def text(self) -> str:
        """What it wrote so far."""
        return self.log.read_text(errors="replace")

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The gateway's log lines of one kind so far."""
        texts = (text.partition(" | ")[2] for text in self.text.splitlines() if text.startswith("gateway  | {"))
        return [line for text in texts if (line := json.loads(text))["event"] == event]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it to get there."""
        async with asyncio.timeout(START_TIMEOUT_S):
            while not condition():
                assert self.process.returncode is None, self.text[-3000:]
                await asyncio.sleep(0.02)

    async def ready(self) -> None:
        """Wait until it reports it, and the gateway's first lines, which are written in batches, are there."""
        await self.until(lambda: _PUBLIC.search(self.text) is not None and bool(self.lines("started")))

    @property
    def port(self) -> int:
        """Of the public listener."""
        return self._number(_PUBLIC)

    @property
    def admin_port(self) -> int:
        """Of the admin listener."""
        return self._number(_ADMIN)

    def gateway_pid(self) -> int:
        """The gateway's process."""
        return self._pid(lambda words: words.count(b"gateway") == 2, "gateway")

    def child_pid(self, socket: str) -> int:
        """The engine that listens on a socket of this name."""
        return self._pid(lambda words: any(word.endswith(f"/{socket}".encode()) for word in words), socket)

    def _pid(self, is_wanted: Callable[[list[bytes]], bool], what: str) -> int:
        for name in Path("/proc").iterdir():
            if not name.name.isdigit():
                continue
            try:
                command = (name / "cmdline").read_bytes().split(b"\0")
                status = (name / "status").read_text()
            except OSError:
                continue
            if f"PPid:\t{self.process.pid}\n" in status and is_wanted(command):
                return int(name.name)
        raise AssertionError(f"no {what} runs")

    async def kill_gateway(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the gateway, and wait until the supervisor has noticed."""
        num_restarts = self.text.count("starting again in")
        os.kill(self.gateway_pid(), number)
        await self.until(lambda: self.text.count("starting again in") > num_restarts)

    async def get(self, path: str, *, admin: bool = False) -> httpx.Response:
        """GET from one of the listeners."""
        port = self.admin_port if admin else self.port
        async with httpx.AsyncClient(timeout=START_TIMEOUT_S) as client:
            return await client.get(f"http://127.0.0.1:{port}{path}")

    async def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 40)

    def _number(self, pattern: re.Pattern[str]) -> int:
        found = pattern.search(self.text)
        assert found is not None, self.text[-3000:]
        return int(found[1])


@asynccontextmanager
async def up_process(
    folder: Path, *flags: str, umask: int = -1, env: Mapping[str, str] | None = None, is_daemon: bool = False
) -> AsyncIterator[UpProcess]:
    """`penstock up` with the given flags on free ports; `folder` is where it runs, its log is beside it.

    A daemon has no terminal.
    """
    log = folder.parent / "up.log"
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gateway", "up", "--port", "0", "--admin-port", "0", *flags),
            cwd=folder,
            stdout=sink,
            stderr=sink,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(env or {})},
            umask=umask,
            start_new_session=is_daemon,
        )
    try:
        yield UpProcess(process, log)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                process.kill()
                await process.wait()

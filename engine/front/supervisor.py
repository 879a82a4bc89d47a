"""Keeps one core process running: starts it, sees it end or hang, starts it again after a pause."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from engine.config import CoreConfig
from engine.front.link import CoreConnection, CoreLink

logger = logging.getLogger(__name__)


class CoreProcess(Protocol):
    """What the supervisor needs of a running core."""

    async def wait(self) -> int:
        """Its exit status, when it has ended."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it."""


Spawn = Callable[[Path], Awaitable[CoreProcess]]
"""Starts a core that connects to the given socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the supervisor waits, in seconds."""

    connect_s: float = 120.0
    """For a started core's first connection (it imports torch before)."""
    start_s: float = 1800.0
    """For the next phase of its start-up (large weights, compiling kernels)."""
    hang_s: float = 120.0
    """For any frame while requests are open."""
    stop_s: float = 5.0
    """For a core that was asked to end."""
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    healthy_s: float = 60.0
    """A core that lived this long resets the pause."""


def spawn_core(config: CoreConfig) -> Spawn:
    """Starts `python -m engine.core` with this configuration."""
    text = json.dumps({key: str(value) if isinstance(value, Path) else value for key, value in asdict(config).items()})

    async def spawn(socket_path: Path) -> CoreProcess:
        arguments = ("-m", "engine.core", "--socket", str(socket_path), "--config", text)
        return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=asyncio.subprocess.DEVNULL)

    return spawn


class CoreSupervisor:
    """Owns the core process; `run` until `stop`. The socket is in a private folder, and gone once it is connected."""

    def __init__(self, link: CoreLink, spawn: Spawn, clock: Callable[[], float], patience: Patience) -> None:
        self._link = link
        self._spawn = spawn
        self._clock = clock
        self._patience = patience
        self._stopping = asyncio.Event()
        self.num_starts = 0

    async def run(self) -> None:
        """Keep a core running until `stop`; the last one has ended when this returns."""
        pause_s = self._patience.first_pause_s
        while not self._stopping.is_set():
            started_at = self._clock()
            status = await self._run_one()
            if self._stopping.is_set():
                return
            if self._clock() - started_at >= self._patience.healthy_s:
                pause_s = self._patience.first_pause_s
            logger.error("core lost: %s (exit status %s); next in %.1f s", self._link.failure, status, pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            pause_s = min(2 * pause_s, self._patience.longest_pause_s)

    def stop(self) -> None:
        """End the core, gently first; `run` returns when it is gone."""
        self._link.shut_down()
        self._stopping.set()

    async def _run_one(self) -> int | None:
        """One core's whole life; its exit status, or None when it could not be started."""
        self.num_starts += 1
        self._link.core_starting()
        connection = CoreConnection(self._link)
        folder = Path(tempfile.mkdtemp(prefix="penstock-"))  # readable by this user only
        try:
            return await self._run_in(folder, connection)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _run_in(self, folder: Path, connection: CoreConnection) -> int | None:
        path = folder / "core.sock"
        server = await asyncio.get_running_loop().create_unix_server(lambda: connection, path=path)
        try:
            process = await self._spawn(path)
        except OSError as error:
            server.close()
            self._link.core_lost(f"it could not be started: {error}")
            return None
        exited = asyncio.create_task(process.wait(), name="core exit")
        try:
            await self._connected(connection, exited)
            server.close()
            shutil.rmtree(folder)  # at once, so that even a front that is killed leaves nothing behind
            self._link.core_lost(await self._watch(connection, exited))
        finally:
            server.close()
            await self._end(connection, process, exited)
        return exited.result() if exited.done() else None

    async def _connected(self, connection: CoreConnection, exited: asyncio.Task[int]) -> None:
        """Return when the core has connected, or never will."""
        opened = asyncio.create_task(connection.opened.wait(), name="core connected")
        stopping = asyncio.create_task(self._stopping.wait(), name="stop")
        waits: set[asyncio.Task[object]] = {opened, exited, stopping}
        await asyncio.wait(waits, timeout=self._patience.connect_s, return_when="FIRST_COMPLETED")
        opened.cancel()
        stopping.cancel()

    async def _watch(self, connection: CoreConnection, exited: asyncio.Task[int]) -> str:
        """Wait for the first sign of the end; say which."""
        if not connection.opened.is_set() and not exited.done() and not self._stopping.is_set():
            return f"it did not connect within {self._patience.connect_s:.0f} s"
        lost = asyncio.create_task(connection.lost.wait(), name="core connection lost")
        stopping = asyncio.create_task(self._stopping.wait(), name="stop")
        hung = asyncio.create_task(self._hung(), name="core hung")
        endings: set[asyncio.Task[object]] = {exited, lost, stopping, hung}
        try:
            await asyncio.wait(endings, return_when="FIRST_COMPLETED")
            if stopping.done():
                return "it was stopped"
            if hung.done():
                return hung.result()
            return self._link.fatal or (connection.reason if lost.done() else "it ended")
        finally:
            for task in (lost, stopping, hung):
                task.cancel()

    async def _hung(self) -> str:
        """Return, with the reason, when the core has been silent for too long."""
        while True:
            silent_s = self._clock() - self._link.last_heard_at
            if self._link.state == "ready" and self._link.num_open and silent_s >= self._patience.hang_s:
                return f"it said nothing for {silent_s:.0f} s with requests open"
            if self._link.state == "starting" and silent_s >= self._patience.start_s:
                return f"it said nothing for {silent_s:.0f} s of its start-up"
            await asyncio.sleep(min(1.0, self._patience.hang_s / 4))

    async def _end(self, connection: CoreConnection, process: CoreProcess, exited: asyncio.Task[int]) -> None:
        """Make sure the process is gone: wait when it was asked to stop, then terminate, then kill."""
        polite = self._link.state == "stopped"
        if not polite:
            connection.close()
        for push in (None, process.terminate, process.kill) if polite else (process.terminate, process.kill):
            if exited.done():
                break
            if push is not None:
                with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
                    push()
            await asyncio.wait({exited}, timeout=self._patience.stop_s)
        connection.close()

"""Supervisor of the core process: starts it, detects its end or a hang, and restarts it after a pause."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.config import CoreConfig, EngineConfigError, core_config_json
from engine.frontend.core_client.link import CoreLink
from engine.frontend.core_client.live_core import CoreProcess, CoreStarts, LiveCore, compiler_crash
from engine.frontend.core_client.standby_pool import StandbyPool

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Timeouts and pauses of the supervisor, in seconds."""

    connect_s: float = 120.0
    """Maximum wait for the connection of a started core, which imports torch first."""
    start_s: float = 1800.0
    """Maximum wait for the next phase of start-up, which may load large weights or compile kernels."""
    hang_s: float = 120.0
    """Maximum time without a frame while requests are open."""
    stop_s: float = 5.0
    """Maximum wait for a core that received a stop request."""
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    healthy_s: float = 60.0
    """Lifetime after which a lost core resets the pause."""


class CoreSpawner:
    """Starter of `python -m engine.core` processes with one configuration."""

    def __init__(self, config: CoreConfig) -> None:
        self._config_text = core_config_json(config)
        self._compiler_crash = ""

    async def serving(self, socket_path: Path) -> CoreProcess:
        """Start a core. Raises OSError."""
        return await self._start(socket_path)

    async def standby(self, socket_path: Path) -> CoreProcess:
        """Start a core that waits until it is needed. Raises OSError."""
        return await self._start(socket_path, "--standby")

    def avoid_compiled_code(self, crash: str) -> None:
        """Start cores without compiled code from now on.

        Args:
            crash: How the compiler ended a core, as their logs and metrics state it.
        """
        self._compiler_crash = crash

    async def _start(self, socket_path: Path, *more: str) -> CoreProcess:
        arguments = ["-m", "engine.core", "--socket", str(socket_path), "--config", self._config_text, *more]
        if self._compiler_crash:
            arguments += ["--compiler-crash", self._compiler_crash]
        return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=asyncio.subprocess.DEVNULL)


class CoreSupervisor:
    """Owner of the core process. A standby, if there is one, replaces a core that is lost."""

    def __init__(
        self,
        link: CoreLink,
        starts: CoreStarts,
        clock: Callable[[], float],
        patience: Patience,
        standbys: StandbyPool | None = None,
    ) -> None:
        self._link = link
        self._starts = starts
        self._clock = clock
        self._patience = patience
        self._standbys = standbys
        self._stopping = asyncio.Event()
        self.num_starts = 0

    async def run(self) -> None:
        """Keep a core running until `stop`; all cores have ended when this returns.

        Raises:
            EngineConfigError: The first core finds that no core can serve with these settings.
        """
        standing_by = None if self._standbys is None else asyncio.create_task(self._standbys.run(), name="standbys")
        try:
            await self._keep_running()
        finally:
            if standing_by is not None:
                standing_by.cancel()
                await asyncio.wait({standing_by})

    def stop(self) -> None:
        """Stop the core, gently first; `run` returns when it has ended."""
        self._link.shut_down()
        self._stopping.set()

    async def _keep_running(self) -> None:
        pause_s = self._patience.first_pause_s
        has_served = False
        while not self._stopping.is_set():
            started_at = self._clock()
            status, was_ready = await self._run_one()
            if self._stopping.is_set():
                return
            has_served = has_served or was_ready
            if crash := compiler_crash(status, self._link.compiling):
                self._starts.avoid_compiled_code(crash)
            # After a core that served, the settings are not at fault: memory may be short or a folder briefly missing.
            if self._link.has_wrong_settings and not has_served:
                raise EngineConfigError(self._link.fatal)
            if self._clock() - started_at >= self._patience.healthy_s:
                pause_s = self._patience.first_pause_s
            if was_ready and self._standbys is not None and self._standbys.num_idle:
                logger.error("core lost: %s (exit status %s); a standby takes over", self._link.failure, status)
                continue
            logger.error("core lost: %s (exit status %s); next in %.1f s", self._link.failure, status, pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            pause_s = min(2 * pause_s, self._patience.longest_pause_s)

    async def _run_one(self) -> tuple[int | None, bool]:
        """Run one core from start to end.

        Returns:
            The exit status (None when the core could not be started), and whether the core was ever ready.
        """
        self.num_starts += 1
        self._link.core_starting()
        live = None if self._standbys is None else self._standbys.take(self._link.num_blocks)
        if live is None:
            try:
                live = await LiveCore.start(self._starts.serving, self._link)
            except OSError as error:
                self._link.core_lost(f"it could not be started: {error}")
                return None, False
        was_ready = False
        try:
            await self._connected(live)
            live.seal()
            reason = await self._watch(live)
            was_ready = self._link.ready is not None
            await live.read_to_the_end()
            self._link.core_lost(reason)
        finally:
            await live.end(is_polite=self._link.state == "stopped", stop_s=self._patience.stop_s)
        return live.status, was_ready

    async def _connected(self, live: LiveCore) -> None:
        """Wait until the core has connected, ended, or run out of time, or until `stop`."""
        connected = asyncio.create_task(live.connection.connected.wait(), name="core connected")
        stopping = asyncio.create_task(self._stopping.wait(), name="stop")
        waits: set[asyncio.Task[object]] = {connected, live.exited, stopping}
        await asyncio.wait(waits, timeout=self._patience.connect_s, return_when="FIRST_COMPLETED")
        connected.cancel()
        stopping.cancel()

    async def _watch(self, live: LiveCore) -> str:
        """Wait for the first sign of the core's end and return its description."""
        connection, exited = live.connection, live.exited
        if not connection.connected.is_set() and not exited.done() and not self._stopping.is_set():
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
        """Wait until the core has been silent for too long and return the reason."""
        while True:
            silent_s = self._clock() - self._link.last_heard_at
            if self._link.state == "ready" and self._link.num_open and silent_s >= self._patience.hang_s:
                return f"it was silent for {silent_s:.0f} s with requests open"
            if self._link.state == "starting" and silent_s >= self._patience.start_s:
                return f"it was silent for {silent_s:.0f} s of its start-up"
            await asyncio.sleep(min(1.0, self._patience.hang_s / 4))

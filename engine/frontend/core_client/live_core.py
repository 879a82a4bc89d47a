"""One core process and the connection that it opens to the front."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.frontend.core_client.link import CoreConnection, CoreListener

_CRASHES = frozenset({signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP})
"""Signals by which a process ends because of its own code, such as a compiler's."""

_LAST_FRAMES_S = 0.5
"""Maximum wait for the frames of a core that has ended; a process of its own may hold its connection open."""


def compiler_crash(status: int | None, compiling: str) -> str:
    """Return how the compiler ended a core, as logs and metrics state it; empty if something else did.

    Args:
        status: Exit status of the core; None if it never started.
        compiling: What the core last reported to compile; empty: nothing.
    """
    if not compiling or status is None or -status not in _CRASHES:
        return ""
    return f"{signal.Signals(-status).name} ended the last core while it compiled {compiling}"


class CoreProcess(Protocol):
    """Process interface that the front needs of a core."""

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit status."""

    def terminate(self) -> None:
        """Send the process SIGTERM."""

    def kill(self) -> None:
        """Send the process SIGKILL."""


Spawn = Callable[[Path], Awaitable[CoreProcess]]
"""Function that starts a core which connects to the given socket."""


@dataclass(frozen=True, slots=True)
class CoreStarts:
    """Functions that start the cores of one engine."""

    serving: Spawn
    standby: Spawn | None = None
    """Starts a standby core; None: no standbys."""
    avoid_compiled_code: Callable[[str], None] = lambda _crash: None
    """Makes later cores compile nothing; the argument tells how the compiler ended a core."""


class LiveCore:
    """Running core process and its connection.

    Its socket lies in a private folder, which `seal` removes once the core has connected.
    """

    def __init__(
        self, process: CoreProcess, connection: CoreConnection, server: asyncio.AbstractServer, folder: Path
    ) -> None:
        self.connection = connection
        self.exited = asyncio.create_task(process.wait(), name="core exit")
        self._process = process
        self._server = server
        self._folder = folder

    @classmethod
    async def start(cls, spawn: Spawn, listener: CoreListener) -> LiveCore:
        """Start a process that connects to a new socket.

        Raises:
            OSError: The process or the socket cannot be created.
        """
        folder = Path(tempfile.mkdtemp(prefix="penstock-"))  # readable by this user only
        try:
            path = folder / "core.sock"
            connection = CoreConnection(listener)
            server = await asyncio.get_running_loop().create_unix_server(lambda: connection, path=path)
            try:
                return cls(await spawn(path), connection, server, folder)
            except BaseException:
                server.close()
                raise
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    @property
    def status(self) -> int | None:
        """Exit status; None while the process runs."""
        return self.exited.result() if self.exited.done() else None

    def seal(self) -> None:
        """Close the listening socket and remove its folder, so that a killed front leaves no files behind."""
        self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def read_to_the_end(self) -> None:
        """Receive the frames that a core sent before it ended; the system may report its end before them."""
        if self.exited.done() and self.connection.connected.is_set():
            lost = asyncio.create_task(self.connection.lost.wait(), name="core connection lost")
            await asyncio.wait({lost}, timeout=_LAST_FRAMES_S)
            lost.cancel()

    async def end(self, *, is_polite: bool, stop_s: float) -> None:
        """Wait for the process to end, then terminate it, then kill it.

        Args:
            is_polite: True if the core already has a stop request; it then gets `stop_s` to follow it.
            stop_s: Timeout of each stage, in seconds.
        """
        self.seal()
        if not is_polite:
            self.connection.close()
        pushes = (self._process.terminate, self._process.kill)
        for push in (None, *pushes) if is_polite else pushes:
            if self.exited.done():
                break
            if push is not None:
                with contextlib.suppress(ProcessLookupError):  # the process has ended meanwhile
                    push()
            await asyncio.wait({self.exited}, timeout=stop_s)
        self.connection.close()

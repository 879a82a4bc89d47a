"""One core process and the connection that it opens to the front."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.frontend.core_client.link import CoreConnection, CoreListener


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

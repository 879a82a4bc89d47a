"""One core process and the connection it opens to the front."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from engine.frontend.core_client.link import CoreConnection, CoreListener


class CoreProcess(Protocol):
    """What the front needs of a running core."""

    async def wait(self) -> int:
        """Its exit status, when it has ended."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it."""


Spawn = Callable[[Path], Awaitable[CoreProcess]]
"""Starts a core that connects to the given socket."""


class LiveCore:
    """From `start` to `end`. The socket is in a private folder, and gone once the core is connected."""

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
        """A process that was told where to connect. Raises OSError when there is none."""
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
        """Exit status; None while it runs."""
        return self.exited.result() if self.exited.done() else None

    def seal(self) -> None:
        """Nobody else can connect, and even a front that is killed leaves nothing behind."""
        self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def end(self, *, is_polite: bool, stop_s: float) -> None:
        """Make sure the process is gone: wait when it was asked to stop, then terminate, then kill."""
        self.seal()
        if not is_polite:
            self.connection.close()
        pushes = (self._process.terminate, self._process.kill)
        for push in (None, *pushes) if is_polite else pushes:
            if self.exited.done():
                break
            if push is not None:
                with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
                    push()
            await asyncio.wait({self.exited}, timeout=stop_s)
        self.connection.close()

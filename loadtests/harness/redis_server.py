"""A Redis for benches that want one: on a Unix socket, with an append-only file that is flushed every second."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from loadtests.harness.processes import ProcessFailed

_START_S: Final = 30.0


class AppendOnlyRedis:
    """One `redis-server`, found on the path; `start` after `kill` comes up with what its file has."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = folder / "r.sock"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """As the `store` setting has it."""
        return f"redis+unix://{self._socket}"

    async def __aenter__(self) -> Self:
        self._folder.mkdir()
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.kill()

    async def start(self) -> None:
        """Returns once it answers. Raises OSError where it is not installed, ProcessFailed when it does not come up."""
        program = shutil.which("redis-server")
        if program is None:
            raise OSError("redis-server is not on the path; install it (Debian: apt-get install redis-server)")
        flags = ("--port", "0", "--unixsocket", str(self._socket), "--dir", str(self._folder), "--save", "")
        durable = ("--appendonly", "yes", "--appendfsync", "everysec")
        self._process = await asyncio.create_subprocess_exec(
            program, *flags, *durable, stdout=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        async with asyncio.timeout(_START_S):
            while not await self._is_up():
                if self._process.returncode is not None:
                    raise ProcessFailed(f"redis-server ended with {self._process.returncode}")
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """As `kill -9`. Idempotent."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def num_clients(self) -> int:
        """Connections that it has, the one that reads this left out."""
        reader, writer = await asyncio.open_unix_connection(str(self._socket))
        writer.write(b"INFO clients\r\n")
        await reader.readline()
        while not (line := await reader.readline()).startswith(b"connected_clients:"):
            if not line:
                raise OSError("redis-server gave no count of its clients")
        writer.close()
        return int(line.partition(b":")[2]) - 1

    async def _is_up(self) -> bool:
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._socket))
        except OSError:
            return False
        writer.write(b"PING\r\n")
        answer = await reader.readline()
        writer.close()
        return answer == b"+PONG\r\n"  # while it reads its file it states -LOADING

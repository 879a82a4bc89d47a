"""EngineProcess: one engine, front and core, as a child process on a Unix socket of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import httpx
import msgspec

PROBE_S: Final = 0.2
REPORT_TIMEOUT_S: Final = 2.0
KILL_AFTER_S: Final = 5.0
"""Time beyond its drain after which an engine that does not end is killed."""
_MAX_EVENT_BYTES: Final = 64 * 1024
_EVENT: Final = b"data: "


class EngineDied(RuntimeError):
    """The engine's process ended, or did not become ready in time."""


class EngineReport(msgspec.Struct, frozen=True):
    """The part of an engine's load report that scaling reads."""

    num_running: int = 0
    num_waiting: int = 0
    max_num_seqs: int = 0
    forecast_wait_s: float = 0.0


class EngineProcess:
    """Start with `start`, end with `stop`; between them `client` reaches the engine."""

    def __init__(self, flags: Sequence[str], *, drain_timeout_s: float) -> None:
        """Prepare an engine with these flags of `penstock engine`; the address is its own."""
        self._flags = tuple(flags)
        self._drain_timeout_s = drain_timeout_s
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-ray-"))
        socket = self._folder / "engine.sock"
        self._address = f"unix:{socket}"
        self._process: asyncio.subprocess.Process | None = None
        self.client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket), limits=httpx.Limits(max_connections=None)),
            base_url="http://engine",
            timeout=httpx.Timeout(None, connect=REPORT_TIMEOUT_S),
            trust_env=False,
        )

    async def start(self, limit_s: float) -> None:
        """Start the engine and wait until it is ready.

        Raises:
            EngineDied: It ended, for a wrong flag or model, or was not ready in time.
        """
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "deploy.ray.engine_child",
            str(os.getpid()),
            *self._flags,
            f"--listen={self._address}",
            f"--drain-timeout-s={self._drain_timeout_s:g}",
        )
        try:
            async with asyncio.timeout(limit_s):
                while not await self._is_ready():
                    self.check()
                    await asyncio.sleep(PROBE_S)
        except TimeoutError as error:
            await self.stop()
            raise EngineDied(f"the engine was not ready within {limit_s:g} s") from error
        except BaseException:
            await self.stop()
            raise

    def check(self) -> None:
        """Raise EngineDied if the process has ended."""
        if self._process is not None and self._process.returncode is not None:
            raise EngineDied(f"the engine ended with status {self._process.returncode}; its log has the reason")

    async def report(self) -> EngineReport:
        """Return the engine's newest load report.

        Raises:
            EngineDied: It does not answer.
        """
        try:
            async with asyncio.timeout(REPORT_TIMEOUT_S), self.client.stream("GET", "/engine/load") as response:
                buffer = b""
                async for part in response.aiter_bytes():
                    buffer += part
                    event, separator, _ = buffer.partition(b"\n\n")
                    if separator:
                        return msgspec.json.decode(event.removeprefix(_EVENT), type=EngineReport)
                    if len(buffer) > _MAX_EVENT_BYTES:
                        break
        except (TimeoutError, httpx.HTTPError, msgspec.DecodeError) as error:
            raise EngineDied(f"the engine reports no load: {type(error).__name__}") from error
        raise EngineDied("the engine reports no load")

    async def stop(self) -> None:
        """Let the engine finish its responses and end, and kill it when it does not."""
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(self._drain_timeout_s + KILL_AFTER_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        await self.client.aclose()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _is_ready(self) -> bool:
        try:
            return (await self.client.get("/readyz", timeout=REPORT_TIMEOUT_S)).status_code == 200
        except httpx.HTTPError:  # it does not listen yet
            return False

"""Gateways as processes of their own, and a client that counts whatever goes wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.config.sources import variable_of
from tests.gateway.stack import Reply, chat, encode

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60.0

_POLICY = """
schema_version: 1
deployments: [{{id: only, url: "unix:{engine}", model: tiny, limits: {{max_in_flight: 1000}}}}]
"""


class GatewayProcess:
    """One running `penstock gateway`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._log = log

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of one kind so far."""
        *texts, _ = self._log.read_text().split("\n")  # the last one may be written just now
        return [line for text in texts if text.startswith("{") and (line := json.loads(text))["event"] == event]

    async def until(self, event: str) -> dict[str, Any]:
        """The first line of a kind, once it is there."""
        async with asyncio.timeout(START_TIMEOUT_S):
            while not (lines := self.lines(event)):
                assert self.process.returncode is None, self._log.read_text()[-3000:]
                await asyncio.sleep(0.02)
        return lines[0]

    @property
    def resident_bytes(self) -> int:
        """Memory that it holds now."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def terminate(self) -> None:
        """SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        """Its exit code."""
        return await asyncio.wait_for(self.process.wait(), 40)


@asynccontextmanager
async def gateway_process(
    folder: Path,
    name: str,
    engine: Path,
    *,
    listen: str,
    pass_fds: tuple[int, ...] = (),
    policy_text: str = _POLICY,
    policy: str | None = None,
    program: tuple[str, ...] = ("gateway", "gateway"),
    more_policy: str = "",
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[GatewayProcess]:
    """A gateway that serves `engine`, ready; `settings` are those of penstock.toml, `program` the module and what comes
    before the flags. `policy` replaces the usual one, which `policy_text` is the pattern of; `more_policy` follows."""
    path = folder / f"{name}.yaml"
    path.write_text((policy_text.format(engine=engine) if policy is None else policy) + more_policy)
    settings = {"process.workers": 1, **(settings or {})}
    variables = {variable_of(key): str(value) for key, value in settings.items()}
    log = folder / f"{name}.log"
    flags = ("--policy", str(path), "--public-listen", listen, "--admin-listen", f"unix:{folder}/{name}.sock")
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", *program, *flags, "--runtime-dir", str(folder)),
            stderr=sink,
            stdout=sink,
            env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
            pass_fds=pass_fds,
        )
    found = GatewayProcess(process, log)
    try:
        await found.until("started")
        yield found
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class SteadyClient:
    """Calls one request after the other, on a connection it keeps for as long as the server lets it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.num_good = 0
        self.failures: list[str] = []
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Call until advanced to stop; whatever is not a 200 is a failure."""
        while not stop.is_set():
            try:
                reply = await asyncio.wait_for(self._send(), 10)
            except (OSError, EOFError, ValueError, TimeoutError) as error:
                self.failures.append(repr(error))
                self._close()
                continue
            if reply.status == 200:
                self.num_good += 1
            else:
                self.failures.append(f"{reply.status} {reply.body[:200]!r}")
            if reply.headers.get("connection") == "close":
                self._close()
        self._close()

    async def _send(self) -> Reply:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        assert self._reader is not None
        self._writer.write(encode(chat(), headers={"connection": "keep-alive"}))
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return Reply(head + await self._reader.readexactly(length))

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


@asynccontextmanager
async def steady_load(port: int, num_clients: int) -> AsyncIterator[list[SteadyClient]]:
    """Run steady clients while the body runs."""
    stop, clients = asyncio.Event(), [SteadyClient(port) for _ in range(num_clients)]
    running = [asyncio.create_task(client.run(stop)) for client in clients]
    try:
        yield clients
    finally:
        stop.set()
        await asyncio.gather(*running)


async def until_more(clients: list[SteadyClient], num: int = 50, *, may_fail: bool = False) -> None:
    """Wait until so many more requests were answered; unless they may fail, none has."""
    before = sum(client.num_good for client in clients)
    while sum(client.num_good for client in clients) < before + num:
        assert may_fail or not any(client.failures for client in clients)
        await asyncio.sleep(0.01)

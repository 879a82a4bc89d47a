"""Clients that would fill a gateway's memory: it stays below its limit, and others are served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gateway.limits.body_budget import WAIT_S
from tests.faults.processes import GatewayProcess, gateway_process
from tests.gateway.scripted import ScriptedUpstream
from tests.gateway.stack import Reply, chat, encode

MB = 1024 * 1024
LIMIT_MB = 200
NUM_CLIENTS = 100


def tenants(*names: str) -> str:
    digests = {name: sha256(f"sk-{name}".encode()).hexdigest() for name in names}
    lines = [f'  - {{id: {name}, keys: [{{id: k, sha256: "{digest}"}}]}}' for name, digest in digests.items()]
    return "\n".join(["tenants:", *lines, ""])


@asynccontextmanager
async def limited_gateway(folder: Path) -> AsyncIterator[GatewayProcess]:
    """One that may hold 200 MB, with the tenants `hog` and `calm`."""
    async with (
        ScriptedUpstream(folder / "engine.sock"),
        gateway_process(
            folder,
            "limited",
            folder / "engine.sock",
            listen=f"unix:{folder}/public.sock",
            more_policy=tenants("hog", "calm"),
            settings={"process.memory_limit_mb": LIMIT_MB},
        ) as gateway,
    ):
        yield gateway


class Pusher:
    """A client that sends 15 MB of a body of 16, as fast as it is let, and keeps what it is given."""

    def __init__(self, folder: Path, *, is_chunked: bool) -> None:
        self.reported = b""
        self._folder = folder
        self._is_chunked = is_chunked

    async def run(self) -> None:
        reader, writer = await asyncio.open_unix_connection(f"{self._folder}/public.sock")
        hearing = asyncio.create_task(self._hear(reader))
        try:
            framing = "transfer-encoding: chunked" if self._is_chunked else f"content-length: {16 * MB}"
            writer.write(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer sk-hog\r\n"
                f"content-type: application/json\r\n{framing}\r\n\r\n".encode()
            )
            piece = b"x" * 65536
            if self._is_chunked:
                piece = b"%x\r\n%b\r\n" % (len(piece), piece)
            with suppress(ConnectionError):
                for _ in range(15 * MB // 65536):
                    writer.write(piece)
                    await writer.drain()
            await hearing
        finally:
            hearing.cancel()
            writer.transport.abort()

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                self.reported += data


async def call(folder: Path, tenant: str, num_bytes: int) -> tuple[int, float]:
    """The status, and how long it took."""
    body: dict[str, Any] = {**chat(), "messages": [{"role": "user", "content": "x" * num_bytes}]}
    begun = time.monotonic()
    reader, writer = await asyncio.open_unix_connection(f"{folder}/public.sock")
    writer.write(encode(body, headers={"authorization": f"Bearer sk-{tenant}"}))
    raw = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return Reply(raw).status, time.monotonic() - begun


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_hundred_unfinished_bodies_of_one_key(tmp_path: Path, is_chunked: bool) -> None:
    async with limited_gateway(tmp_path) as gateway:
        pushers = [Pusher(tmp_path, is_chunked=is_chunked) for _ in range(NUM_CLIENTS)]
        pushing = [asyncio.create_task(pusher.run()) for pusher in pushers]
        most, answers = 0, []
        for size in (10, 1000, 100_000, MB) * 4:
            answers.append(await call(tmp_path, "calm", size))
            most = max(most, gateway.resident_bytes)
            await asyncio.sleep(0.1)
        assert [status for status, _ in answers] == [200] * len(answers)
        assert max(seconds for _, seconds in answers) < 2.0
        assert most < LIMIT_MB * MB
        refused = [Reply(pusher.reported) for pusher in pushers if pusher.reported]
        assert refused
        assert {reply.status for reply in refused} == {503}
        assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
        for task in pushing:
            task.cancel()
        await asyncio.gather(*pushing, return_exceptions=True)
        assert (await call(tmp_path, "calm", 4 * MB))[0] == 200
        # A client that left while nothing was read of it is found out when its wait for room is over.
        async with asyncio.timeout(2 * WAIT_S):
            while (await call(tmp_path, "hog", 8 * MB))[0] != 200:
                await asyncio.sleep(0.2)

"""A small HTTP server inside the test's own loop, as slow as a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import pytest

from loadtests.clients.http_client import Address

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class StallingServer(asyncio.Protocol):
    """Answers at once, except from `stall_at` to `stall_end`: then nothing comes until the end."""

    def __init__(self, stall_at: float, stall_end: float, open_ones: set[asyncio.Transport]) -> None:
        self._open_ones = open_ones
        self._stall_at = stall_at
        self._stall_end = stall_end
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open_ones.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_ones.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        now = self._loop.time()
        if self._stall_at <= now < self._stall_end:
            self._loop.call_at(self._stall_end, self._transport.write, ANSWER)
        else:
            self._transport.write(ANSWER)


ServeStalling = Callable[[float, float], Awaitable[Address]]


@pytest.fixture
async def serve_stalling() -> AsyncIterator[ServeStalling]:
    """`address = await serve_stalling(after_s, for_s)`."""
    servers: list[asyncio.Server] = []
    open_ones: set[asyncio.Transport] = set()

    async def start(after_s: float, for_s: float) -> Address:
        loop = asyncio.get_running_loop()
        stall_at = loop.time() + after_s
        server = await loop.create_server(lambda: StallingServer(stall_at, stall_at + for_s, open_ones), "127.0.0.1", 0)
        servers.append(server)
        return Address(port=server.sockets[0].getsockname()[1])

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()
    for transport in tuple(open_ones):
        transport.abort()
    while open_ones:
        await asyncio.sleep(0)

"""An upstream that does exactly what a test's script states, byte by byte."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest

POST = UpstreamRequest(b"POST", b"/v1/chat/completions", [(b"content-type", b"application/json")], b'{"a":1}')
NO_TIMEOUTS = ExchangeTimeouts()


class Peer:
    """One accepted connection, as the script sees it."""

    def __init__(self, upstream: ScriptedUpstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.upstream = upstream
        self.number = upstream.num_connections
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        """The next whole request; b"" when the client closed instead."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        body = await self.reader.readexactly(length)
        self.upstream.requests.append(head + body)
        return head + body

    async def send(self, data: bytes) -> None:
        if self.writer.is_closing():
            raise ConnectionResetError
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Returns when the client has closed."""
        while await self.reader.read(65536):
            pass

    def reset(self) -> None:
        """Close with RST where the socket has one."""
        raw = self.writer.get_extra_info("socket")
        if raw.family == socket.AF_INET:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class ScriptedUpstream:
    """Listens on a Unix socket, or on a TCP port of its choice when `path` is None."""

    def __init__(self, script: Script, path: Path | None, context: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._path = path
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()
        self.num_connections = 0
        self.num_open = 0
        self.requests: list[bytes] = []
        self.port = 0

    async def __aenter__(self) -> Self:
        if self._path is not None:
            self._server = await asyncio.start_unix_server(self._accept, self._path)
        else:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
            self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.num_connections += 1
        self.num_open += 1
        try:
            await self._script(Peer(self, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left in the middle, or the test is over; tests check num_open
        finally:
            self.num_open -= 1
            self._tasks.discard(task)
            writer.transport.abort()

    async def until_closed(self) -> None:
        """Returns when no script runs any more."""
        async with asyncio.timeout(5):
            while self.num_open:
                await asyncio.sleep(0)


def plain(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A response with a content-length."""
    lines = [b"HTTP/1.1 " + status, b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def answering(*responses: bytes) -> Script:
    """A script that answers request after request, the last response for ever."""

    async def script(peer: Peer) -> None:
        number = 0
        while await peer.request():
            await peer.send(responses[min(number, len(responses) - 1)])
            number += 1

    return script


def sending_then_closing(*pieces: bytes) -> Script:
    """A script that answers one request with these bytes and closes."""

    async def script(peer: Peer) -> None:
        await peer.request()
        for piece in pieces:
            await peer.send(piece)

    return script


def sending_then_waiting(*pieces: bytes) -> Script:
    """A script that answers one request with these bytes and then waits for the client to leave."""

    async def script(peer: Peer) -> None:
        await peer.request()
        for piece in pieces:
            await peer.send(piece)
            await asyncio.sleep(0.002)  # so that pieces are read apart
        await peer.gone()

    return script

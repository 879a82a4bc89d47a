"""The few lines of HTTP/1.1 that scripted servers share: whole requests in, bytes out, and word of a client that left.

It trusts its clients (this project's own) to frame well; it is no server for the open internet.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final, cast

STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
CREATED: Final = 1_700_000_000
"""What every answer states of its time."""


def plain_response(body: bytes, status: int = 200, kind: bytes = b"application/json", extra: bytes = b"") -> bytes:
    """A whole response with a length; `extra` are header lines, each ending in CR LF."""
    return b"HTTP/1.1 %d Scripted\r\ncontent-type: %b\r\n%bcontent-length: %d\r\n\r\n%b" % (
        status, kind, extra, len(body), body,
    )  # fmt: skip


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: object) -> bytes:
    """Return one server-sent event."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def delta_event(common: dict[str, object], delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    """Return the event of one part of an answer; `common` has its id and model."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return event({"object": "chat.completion.chunk", "created": CREATED, **common, "choices": [choice]})


async def serve(path: str, accept: Callable[[], asyncio.Protocol]) -> None:
    """Listen on a Unix socket and a free TCP port, which one JSON line on stdout names, until cancelled."""
    loop = asyncio.get_running_loop()
    unix = await loop.create_unix_server(accept, path, backlog=4096)
    tcp = await loop.create_server(accept, "127.0.0.1", 0, backlog=4096)
    print(json.dumps({"port": tcp.sockets[0].getsockname()[1]}), flush=True)
    async with unix, tcp:
        await asyncio.gather(unix.serve_forever(), tcp.serve_forever())


class TinyConnection(asyncio.Protocol):
    """One accepted keep-alive connection; a subclass answers in `on_request` and learns of the end in `on_lost`."""

    def __init__(self) -> None:
        self._buffer = b""
        self.transport: asyncio.Transport

    def on_request(self, method: bytes, path: bytes, head: bytes, body: bytes) -> None:
        """A whole request came; `head` is in lower case."""
        raise NotImplementedError

    def on_lost(self) -> None:
        """The client closed, or was cut off."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: accepted."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: closed."""
        self.on_lost()

    def data_received(self, data: bytes) -> None:
        """asyncio: part of a request, or all of it."""
        self._buffer = data = self._buffer + data if self._buffer else data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = data[: end + 2].lower()
        at = head.find(b"\r\ncontent-length:")
        length = int(head[at + 17 : head.index(b"\r\n", at + 17)]) if at >= 0 else 0
        if len(data) < end + 4 + length:
            return
        self._buffer = b""
        method, path, _ = data.split(b" ", 2)
        self.on_request(method, path, head, data[end + 4 :])

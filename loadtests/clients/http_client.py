"""An HTTP client that costs little: one asyncio protocol a connection, one request at a time, times of everything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

clock = time.perf_counter

_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_DONE = b"data: [DONE]\n\n"


class BadResponse(ValueError):
    """The bytes are not a response this scanner understands."""


class ResponseScanner:
    """`begin`, then `feed` until it returns True; `status`, `body` and the rest are about the current response."""

    __slots__ = (
        "_head",
        "_is_chunked",
        "_missing",
        "_tail",
        "body",
        "has_done",
        "head",
        "keep_alive",
        "keep_body",
        "status",
    )

    def __init__(self, *, keep_body: bool = False) -> None:
        self.keep_body = keep_body
        self.begin()

    def begin(self) -> None:
        """Expect a new response."""
        self._head = b""
        self._tail = b""
        self._missing = 0
        self._is_chunked = False
        self.head = b""
        self.status = 0
        self.keep_alive = True
        self.has_done = False
        """Whether a chunked body held the end marker of an event stream."""
        self.body = bytearray()
        """Raw bytes after the head (chunk framing included), when `keep_body`."""

    @property
    def content(self) -> bytes:
        """The body as it was meant; needs `keep_body` and a whole response."""
        body = bytes(self.body)
        return unchunked(body) if self._is_chunked else body

    def feed(self, data: bytes) -> bool:
        """Whether the response is whole with `data`. Raises BadResponse."""
        if not self.status:
            self._head += data
            end = self._head.find(_HEAD_END)
            if end < 0:
                return False
            data = self._head[end + 4 :]
            self._read_head(self._head[: end + 2].lower())
        if self.keep_body:
            self.body += data
        if not self._is_chunked:
            self._missing -= len(data)
            if self._missing < 0:
                raise BadResponse("bytes after the end of the response")
            return self._missing == 0
        return self._feed_chunked(data)

    def _feed_chunked(self, data: bytes) -> bool:
        joined = self._tail + data if self._tail else data
        if not self.has_done and _DONE in joined:
            self.has_done = True
        self._tail = joined[-len(_DONE) - 8 :]
        # Events end in a blank line of LF, so CR LF CR LF after a zero can only be the last chunk.
        return joined.endswith(_LAST_CHUNK) and (len(joined) == 5 or joined[-6:-5] == b"\n")

    def _read_head(self, head: bytes) -> None:
        self.head = head
        try:
            self.status = int(head[9:12])
            at = head.find(b"\r\ncontent-length:")
            if at >= 0:
                self._missing = int(head[at + 17 : head.index(b"\r\n", at + 17)])
        except ValueError as error:
            raise BadResponse(f"not a response: {head[:60]!r}") from error
        self._is_chunked = at < 0 and b"\r\ntransfer-encoding: chunked" in head
        self.keep_alive = b"\r\nconnection: close" not in head
        if at < 0 and not self._is_chunked:
            raise BadResponse("a response without a length")


def unchunked(body: bytes) -> bytes:
    """A whole chunked body without its framing."""
    data, at = bytearray(), 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        if size == 0:
            return bytes(data)
        data += body[end + 2 : end + 2 + size]
        at = end + 2 + size + 2


def request_bytes(method: str, path: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()) -> bytes:
    """One request, ready to write."""
    host = () if any(name == "host" for name, _ in headers) else (("host", "loadtest"),)
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in (*host, *headers))]
    if body:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join(lines).encode() + _HEAD_END + body


@dataclass(slots=True)
class Exchange:
    """One request and what came of it; instants are of `loadtests.clients.http_client.clock`."""

    sent_at: float
    first_byte_at: float = 0.0
    ended_at: float = 0.0
    status: int = 0
    has_done: bool = False
    error: str | None = None

    @property
    def is_ok(self) -> bool:
        """Answered whole, with 200."""
        return self.error is None and self.status == 200


OnPiece = Callable[[float, bytes], None]


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect: a TCP port on this machine, or a Unix socket."""

    port: int = 0
    path: str = ""

    @property
    def url(self) -> str:
        """As a policy names it."""
        return f"unix:{self.path}" if self.path else f"http://127.0.0.1:{self.port}"


class LoadConnection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, *, keep_body: bool = False) -> None:
        self.scanner = ResponseScanner(keep_body=keep_body)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._on_end: Callable[[Exchange], None] | None = None
        self._on_piece: OnPiece | None = None

    @classmethod
    async def open(cls, address: Address, *, keep_body: bool = False) -> LoadConnection:
        """A connected one. Raises OSError."""
        loop = asyncio.get_running_loop()
        connection = cls(keep_body=keep_body)
        if address.path:
            await loop.create_unix_connection(lambda: connection, address.path)
        else:
            await loop.create_connection(lambda: connection, "127.0.0.1", address.port)
        return connection

    @property
    def is_open(self) -> bool:
        """Whether another request may be tried."""
        return self._transport is not None

    def start(self, request: bytes, on_end: Callable[[Exchange], None], on_piece: OnPiece | None = None) -> Exchange:
        """Write a request; `on_end` is called once, also when the connection is lost."""
        assert self._exchange is None, "one request at a time"
        self.scanner.begin()
        self._on_end = on_end
        self._on_piece = on_piece
        self._exchange = exchange = Exchange(clock())
        if self._transport is None:
            self._end("not connected")
        else:
            self._transport.write(request)
        return exchange

    async def exchange(self, request: bytes, on_piece: OnPiece | None = None) -> Exchange:
        """Write a request and wait for the end of its response; cancelling closes the connection."""
        done = asyncio.get_running_loop().create_future()

        def on_end(exchange: Exchange) -> None:
            if not done.done():
                done.set_result(exchange)

        self.start(request, on_end, on_piece)
        try:
            return cast(Exchange, await done)
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        """Close at once, whatever is under way. Idempotent."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes came."""
        exchange = self._exchange
        if exchange is None:
            self.close()  # nobody sent
            return
        now = clock()
        if not exchange.first_byte_at:
            exchange.first_byte_at = now
        try:
            is_whole = self.scanner.feed(data)
        except BadResponse as error:
            self._end(str(error))
            self.close()
            return
        if self._on_piece is not None:
            self._on_piece(now, data)
        if is_whole:
            self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: closed."""
        self._transport = None
        if self._exchange is not None:
            self._end("connection closed" if exc is None else f"connection lost: {exc}")

    def _end(self, error: str | None) -> None:
        exchange, on_end = self._exchange, self._on_end
        assert exchange is not None
        assert on_end is not None
        self._exchange = self._on_end = self._on_piece = None
        exchange.ended_at = clock()
        exchange.status = self.scanner.status
        exchange.has_done = self.scanner.has_done
        exchange.error = error
        if not self.scanner.keep_alive:
            self.close()
        on_end(exchange)


async def fetch(address: Address, path: str) -> tuple[int, str]:
    """(status, body) of one GET on a connection of its own. Raises OSError."""
    connection = await LoadConnection.open(address, keep_body=True)
    try:
        exchange = await connection.exchange(request_bytes("GET", path, headers=(("host", "localhost"),)))
        if exchange.error is not None:
            raise OSError(f"GET {path}: {exchange.error}")
        return exchange.status, connection.scanner.content.decode("utf-8", "replace")
    finally:
        connection.close()

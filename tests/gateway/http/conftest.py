"""A real server on a free port, an application that remembers what reached it, and a client that speaks raw bytes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop

from gateway.errors import GatewayError
from gateway.http.asgi import Receive, Scope, Send, read_body, respond
from gateway.http.limits import BodyLimits, ConnectionLimits, EdgeLimits, HeaderLimits
from gateway.http.server import Listener, Server
from gateway.timeline import RequestIds

READ_TIMEOUT_S = 5.0

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that runs in production: its transports are part of what is tested."""
    return {"uvloop": uvloop.new_event_loop}


class ManualClock:
    """A clock that stands still until advanced."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class RecordingApp:
    """Answers with what it read, and remembers every request that reached it."""

    handler: Handler | None = None
    seen: list[tuple[str, str, bytes]] = field(default_factory=list)
    num_started: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.num_started += 1
        if self.handler is not None:
            await self.handler(scope, receive, send)
            return
        body = await read_body(receive, 10**9)
        self.seen.append((scope["method"], scope["path"], body))
        await respond(send, 200, [(b"content-type", b"text/plain")], b"good:" + body)


@dataclass(frozen=True)
class Reply:
    """One parsed response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The inside of the error envelope."""
        return json.loads(self.body)["error"]  # type: ignore[no-any-return]


class RawClient:
    """One connection; reads responses one at a time and knows whether the server closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self) -> Reply:
        """The next response, its body decoded by content-length, chunks, or the end of the connection."""
        async with asyncio.timeout(READ_TIMEOUT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = head.split("\r\n")
            status = int(lines[0].split(" ")[1])
            headers = dict(line.split(": ", 1) for line in lines[1:] if line)
            if "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            elif headers.get("transfer-encoding") == "chunked":
                body = await self._chunks()
            elif status == 100:
                body = b""
            else:
                body = await self.reader.read()
        return Reply(status=status, headers=headers, body=body)

    async def _chunks(self) -> bytes:
        body = b""
        while True:
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            data = await self.reader.readexactly(size + 2)
            if size == 0:
                return body
            body += data[:-2]

    async def rest(self) -> bytes:
        """Everything until the server closes; an empty result means that it just closed."""
        async with asyncio.timeout(READ_TIMEOUT_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def call(self, data: bytes) -> Reply:
        await self.send(data)
        return await self.reply()


@dataclass
class Edge:
    """A running server with one public listener."""

    server: Server
    app: RecordingApp
    clock: ManualClock | None
    refusals: list[tuple[str, GatewayError]]

    def address(self, listener: str = "public") -> str:
        return self.server.addresses[listener][0]

    @asynccontextmanager
    async def connect(self, listener: str = "public", **options: Any) -> AsyncIterator[RawClient]:
        address = self.address(listener)
        if address.startswith("unix:"):
            reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"), **options)
        else:
            host, port = address.rsplit(":", 1)
            reader, writer = await asyncio.open_connection(host, int(port), **options)
        try:
            yield RawClient(reader, writer)
        finally:
            writer.transport.abort()

    async def is_serving(self, listener: str = "public") -> bool:
        """True when a good request on a fresh connection is answered."""
        async with self.connect(listener) as client:
            return (await client.call(get("/good"))).status == 200

    def pass_time(self, seconds: float) -> None:
        """Let the injected clock run and have the server check its deadlines."""
        assert self.clock is not None
        self.clock.advance(seconds)
        self.server.sweep()


def get(path: str = "/", *extra: bytes) -> bytes:
    """A plain request head."""
    lines = [f"GET {path} HTTP/1.1".encode(), b"Host: edge.test", *extra, b"", b""]
    return b"\r\n".join(lines)


def post(body: bytes, *extra: bytes) -> bytes:
    """A request with a declared body."""
    lines = [b"POST /echo HTTP/1.1", b"Host: edge.test", b"Content-Length: %d" % len(body), *extra, b"", b""]
    return b"\r\n".join(lines) + body


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until `condition` holds."""
    async with asyncio.timeout(READ_TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.001)


StartEdge = Callable[..., Awaitable[Edge]]


def edge_limits(**bounds: Any) -> EdgeLimits:
    """Return the limits with these bounds, each by its section and its key: `header__max_bytes=100`."""
    sections: dict[str, dict[str, Any]] = {"connections": {}, "header": {}, "body": {}}
    for name, value in bounds.items():
        section, _, key = name.partition("__")
        sections[section][key] = value
    return EdgeLimits(
        connections=ConnectionLimits(**sections["connections"]),
        header=HeaderLimits(**sections["header"]),
        body=BodyLimits(**sections["body"]),
    )


@pytest.fixture
async def start_edge() -> AsyncIterator[StartEdge]:
    """Starts edges and closes them, with nothing left running, after the test."""
    edges: list[Edge] = []

    async def start(
        handler: Handler | None = None,
        *,
        clock: ManualClock | None = None,
        listeners: dict[str, EdgeLimits] | None = None,
        address: str = "127.0.0.1:0",
        **limits: Any,
    ) -> Edge:
        app = RecordingApp(handler)
        refusals: list[tuple[str, GatewayError]] = []
        by_name = listeners or {"public": edge_limits(**limits)}
        server = Server(
            [Listener(name=name, address=address, app=app, limits=each) for name, each in by_name.items()],
            new_request_id=RequestIds(random.Random(7)).next,
            on_refusal=lambda listener, error: refusals.append((listener, error)),
            clock=clock,
        )
        await server.start()
        edges.append(Edge(server, app, clock, refusals))
        return edges[-1]

    yield start
    for edge in edges:
        await edge.server.close()
        await until(lambda edge=edge: not any(edge.server.num_connections.values()))  # type: ignore[misc]


@pytest.fixture
def clock() -> ManualClock:
    """Stands still; `Edge.pass_time` moves it."""
    return ManualClock()

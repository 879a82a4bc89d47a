"""Clients of every kind at once: each API, plain and streamed, hits, misses, early leavers, bad input, admin reads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Final

from loadtests.clients.http_client import Address, LoadConnection, request_bytes
from loadtests.harness.stack import Server

EXPECTED: Final[Mapping[str, frozenset[int]]] = {
    "answered": frozenset({200, 429, 502, 503, 504}),
    "refused": frozenset({400, 404, 405, 413, 415, 431}),
    "read": frozenset({200, 503}),
}
"""Statuses that a request of each kind may get while parts of the system fail."""
_PATIENCE_S: Final = 60.0
_ADMIN_PATHS: Final = (
    *("/metrics", "/readyz", "/admin/api/requests", "/admin/api/cache", "/admin/api/diagnosis", "/admin/api/tenants"),
    *("/admin/api/policy", "/admin/", "/openapi.json"),
)
_FOR_ADMIN: Final = (("host", "localhost"), ("connection", "close"))
_GARBAGE: Final = (
    b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: +5\r\n\r\nabcde",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n{",
)
_BAD_BODIES: Final = (
    b"{",
    b"[]",
    b'{"model": "auto", "model": "auto", "messages": []}',
    b'{"model": "auto", "messages": [{"role": "user", "content": "\\ud800"}]}',
    b'{"model": "auto", "messages": [{"role": "user", "content": "a"}], "n": 1000}',
    b'{"model": "auto", "messages": [{"role": "user", "content": "a"}], "api_base": "http://169.254.169.254"}',
    b"[" * 20_000,
)


class MixedLoad:
    """Any number of clients; `statuses` counts what they got, `problems` has what nobody may get."""

    def __init__(self, gateway: Server, rng: random.Random) -> None:
        self._gateway = gateway
        self._rng = rng
        self._is_over = asyncio.Event()
        self.num_requests = 0
        self.statuses: Counter[str] = Counter()
        self.problems: list[str] = []

    async def run(self, num_clients: int) -> None:
        """Send until `end`."""
        await asyncio.gather(*(self._client() for _ in range(num_clients)))

    def end(self) -> None:
        """Let every client finish what it is at."""
        self._is_over.set()

    async def _client(self) -> None:
        connection: LoadConnection | None = None
        while not self._is_over.is_set():
            drawn = self._rng.random()
            try:
                if drawn < 0.08:
                    await self._send_garbage()
                elif drawn < 0.14:
                    await self._read_admin()
                elif drawn < 0.26:
                    await self._leave()
                else:
                    connection = await self._talk(connection)
            except OSError as error:
                self.statuses[type(error).__name__] += 1  # a listener that is full, or a gateway that is gone
                connection = None
                await asyncio.sleep(0.05)
            if self._rng.random() < 0.2:
                await asyncio.sleep(self._rng.random() * 0.1)
        if connection is not None:
            connection.close()

    async def _talk(self, connection: LoadConnection | None) -> LoadConnection:
        """One request, right or wrong, on a connection that is kept."""
        if connection is None or not connection.is_open:
            connection = await LoadConnection.open(self._gateway.address, keep_body=True)
        if self._rng.random() < 0.1:
            body = self._rng.choice(_BAD_BODIES)
            await self._exchange(connection, request_bytes("POST", "/v1/chat/completions", body), "refused")
        else:
            await self._exchange(connection, self._request(), "answered")
        return connection

    async def _exchange(self, connection: LoadConnection, request: bytes, kind: str) -> None:
        self.num_requests += 1
        try:
            exchange = await asyncio.wait_for(connection.exchange(request), _PATIENCE_S)
        except TimeoutError:
            self._complain(f"{kind}: no end within {_PATIENCE_S:g} s of {request[:60]!r}")
            return
        if exchange.error is not None:
            # A stream that breaks ends with an event and its framing whole; anything else is for the card.
            self.statuses[f"{kind} cut"] += 1
            return
        self.statuses[f"{kind} {exchange.status}"] += 1
        if exchange.status not in EXPECTED[kind]:
            self._complain(f"{kind}: {exchange.status}: {bytes(connection.scanner.content[:200])!r}")

    def _complain(self, text: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(text)

    def _request(self) -> bytes:
        """A right request of any API."""
        rng = self._rng
        text = (
            f"question {rng.randrange(40) if rng.random() < 0.4 else rng.randrange(10**9)}: "
            + "word " * rng.randrange(40)
        )
        stream = rng.random() < 0.5
        message = [{"role": "user", "content": text}]
        model, tokens = rng.choice(("auto", "auto", "engine")), rng.randrange(1, 24)
        kind = rng.choices(
            ("chat", "responses", "messages", "completions", "embeddings", "tokenize"), (10, 3, 3, 2, 2, 1)
        )
        bodies: dict[str, tuple[str, dict[str, object]]] = {
            "chat": ("/v1/chat/completions", {"messages": message, "max_tokens": tokens, "stream": stream}),
            "responses": ("/v1/responses", {"input": text, "max_output_tokens": max(16, tokens), "stream": stream}),
            "messages": ("/v1/messages", {"messages": message, "max_tokens": tokens, "stream": stream}),
            "completions": ("/v1/completions", {"prompt": text, "max_tokens": tokens, "stream": stream}),
            "embeddings": ("/v1/embeddings", {"input": [text, "another"]}),
            "tokenize": ("/tokenize", {"prompt": text}),
        }
        path, fields = bodies[kind[0]]
        name = {"embeddings": "encoder", "tokenize": "engine", "completions": "engine"}.get(kind[0], model)
        return request_bytes("POST", path, json.dumps({"model": name, **fields}).encode())

    async def _leave(self) -> None:
        """A client that closes its connection at any moment."""
        connection = await LoadConnection.open(self._gateway.address)
        self.num_requests += 1
        connection.start(self._request(), lambda _: None)
        await asyncio.sleep(self._rng.choice((0.0, 0.002, 0.02, 0.2)) * self._rng.random() * 2)
        connection.close()
        self.statuses["left"] += 1

    async def _send_garbage(self) -> None:
        """Bytes that are no request, and the end of the connection."""
        reader, writer = await _open(self._gateway.address)
        with contextlib.suppress(ConnectionError):
            writer.write(self._rng.choice(_GARBAGE))
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(), 0.5)
        writer.close()
        self.statuses["garbage"] += 1

    async def _read_admin(self) -> None:
        connection = await LoadConnection.open(self._gateway.admin, keep_body=True)
        path = self._rng.choice(_ADMIN_PATHS)
        await self._exchange(connection, request_bytes("GET", path, headers=_FOR_ADMIN), "read")
        connection.close()


async def _open(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", address.port)

"""A Kubernetes API server on real sockets, whose answers and watch events a test gives one by one."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

LIMIT_S = 5.0


class ApiCall:
    """One request, which the test answers."""

    def __init__(self, head: str, writer: asyncio.StreamWriter) -> None:
        lines = head.split("\r\n")
        self.method, target, _ = lines[0].split(" ")
        parts = urlsplit(target)
        self.path = parts.path
        self.parameters = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        self._writer = writer
        self.is_over = asyncio.Event()

    @property
    def is_watch(self) -> bool:
        """True if it asks for changes."""
        return self.parameters.get("watch") == "1"

    async def answer(self, document: Any, status: int = 200) -> None:
        """A whole JSON answer."""
        body = json.dumps(document).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        await self._writer.drain()
        self.is_over.set()

    async def begin(self) -> None:
        """The head of a watch."""
        self._writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        await self._writer.drain()

    async def event(self, kind: str, document: Any) -> None:
        """One event of a watch."""
        await self.raw(json.dumps({"type": kind, "object": document}).encode() + b"\n")

    async def raw(self, data: bytes) -> None:
        """Bytes of a watch, as one chunk."""
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._writer.drain()

    async def end(self) -> None:
        """The regular end of a watch, as after its time limit."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        self.is_over.set()

    def cut(self) -> None:
        """Reset the connection."""
        self._writer.transport.abort()
        self.is_over.set()


class ScriptedApi:
    """Holds every request until the test takes and answers it."""

    def __init__(self) -> None:
        self.url = ""
        self._calls: asyncio.Queue[ApiCall] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(self) -> ApiCall:
        """The next request."""
        return await asyncio.wait_for(self._calls.get(), LIMIT_S)

    @property
    def num_waiting(self) -> int:
        """Requests that the test has not taken."""
        return self._calls.qsize()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                call = ApiCall(head[:-4].decode(), writer)
                self._calls.put_nowait(call)
                await call.is_over.wait()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client left, or the test ends
        finally:
            writer.close()
            self._tasks.discard(task)

    async def close(self) -> None:
        """Drop every connection."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def scripted_api(tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedApi]:
    """A server on a free port of 127.0.0.1."""
    api = ScriptedApi()
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    api.url = f"http://127.0.0.1:{port}" if tls is None else f"https://localhost:{port}"
    try:
        yield api
    finally:
        server.close()
        await api.close()


def endpoint_slice(
    name: str, version: int, *addresses: str, not_ready: tuple[str, ...] = (), ports: Any = None
) -> dict[str, Any]:
    """An EndpointSlice as the API writes it."""
    endpoints = [{"addresses": [address], "conditions": {"ready": True, "serving": True}} for address in addresses]
    endpoints += [
        {"addresses": [address], "conditions": {"ready": False, "serving": True, "terminating": True}}
        for address in not_ready
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "llm", "resourceVersion": str(version), "labels": {}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}] if ports is None else ports,
    }


def slice_list(version: int, *slices: dict[str, Any], more: str = "") -> dict[str, Any]:
    """A list of slices, or a page of one."""
    metadata = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    return {"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "metadata": metadata, "items": slices}


def bookmark(version: int) -> dict[str, Any]:
    """The object of a BOOKMARK event: a version and nothing else."""
    return {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": {"resourceVersion": str(version)}}


GONE = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "Expired",
    "code": 410,
    "message": "too old",
}

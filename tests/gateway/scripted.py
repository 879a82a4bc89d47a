"""A scripted upstream on a Unix socket: every request runs the next script, every disconnect is noted."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self


class Received:
    """One request as the upstream saw it."""

    def __init__(self, head: bytes, body: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        self.body = body

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class Wire:
    """What a script may do to its client."""

    def __init__(self, writer: asyncio.StreamWriter, request: Received) -> None:
        self.writer = writer
        self.request = request
        self.is_gone = asyncio.Event()

    async def send(self, data: bytes) -> None:
        """Raw bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """A whole JSON response."""
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in {"content-type": "application/json", **(headers or {})}.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode() + body)

    async def start_stream(self) -> None:
        """The head of an event stream."""
        await self.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")

    async def event(self, data: bytes) -> None:
        """One `data:` event as one chunk."""
        payload = b"data: " + data + b"\n\n"
        await self.send(b"%x\r\n%b\r\n" % (len(payload), payload))

    async def end(self) -> None:
        """The end of a chunked body."""
        await self.send(b"0\r\n\r\n")

    def abort(self) -> None:
        """Reset the connection."""
        self.writer.transport.abort()


Script = Callable[[Wire], Awaitable[None]]


def chunk(text: str | None = None, *, finish: str | None = None, usage: tuple[int, int] | None = None) -> bytes:
    """One chat completion chunk."""
    delta: dict[str, Any] = {} if text is None else {"content": text}
    event: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "tiny",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    if usage is not None:
        event["choices"] = []
        event["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return json.dumps(event, separators=(",", ":")).encode()


COMPLETION = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
).encode()


async def complete(wire: Wire) -> None:
    """Answer as an engine would, stream or not."""
    if not wire.request.json.get("stream"):
        await wire.answer(COMPLETION)
        return
    await wire.start_stream()
    for text in ("", "hel", "lo"):
        await wire.event(chunk(text))
    await wire.event(chunk(finish="stop"))
    await wire.event(chunk(usage=(7, 3)))
    await wire.event(b"[DONE]")
    await wire.end()


async def hang(wire: Wire) -> None:
    """Never answer."""
    await wire.is_gone.wait()


class ScriptedUpstream:
    """Listens until `close`; `scripts` are used up in order, then `otherwise` answers."""

    def __init__(self, path: Path, otherwise: Script = complete, *, tls: ssl.SSLContext | None = None) -> None:
        """Listens at `path`; with `tls` on a free port of 127.0.0.1 instead."""
        self.path = path
        self.tls = tls
        self.otherwise = otherwise
        self.scripts: list[Script] = []
        self.received: list[Received] = []
        self.probes: list[Received] = []
        self.is_ready = True
        self.reported: Any = {}
        """With every answer to a probe."""
        self.num_gone = 0
        """Requests whose connection the gateway closed before the script ended."""
        self.gone = asyncio.Event()
        self.got_request = asyncio.Event()
        self.num_open = 0
        self.num_now = 0
        """Requests whose script runs."""
        self.most_at_once = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        if self.tls is None:
            self._server = await asyncio.start_unix_server(self._serve, path=str(self.path))
        else:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        return self

    @property
    def port(self) -> int:
        """Where it listens with `tls`."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.num_open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await self._one(head[:-4], reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the gateway closed the connection, or the test ends
        finally:
            self.num_open -= 1
            self._tasks.discard(task)
            writer.close()

    async def _one(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = Received(head, b"")
        received.body = await reader.readexactly(int(received.headers.get("content-length", "0")))
        wire = Wire(writer, received)
        if received.line.startswith("GET ") and "/readyz " in received.line:
            self.probes.append(received)
            await wire.answer(json.dumps(self.reported).encode(), 200 if self.is_ready else 503)
            return
        if received.line.startswith(("GET /engine/load ", "GET /metrics ")):
            await wire.answer(b"{}", 404)  # it publishes no load
            return
        self.received.append(received)
        self.got_request.set()
        script = self.scripts.pop(0) if self.scripts else self.otherwise
        watcher = asyncio.ensure_future(self._watch(reader, wire))
        self.num_now += 1
        self.most_at_once = max(self.most_at_once, self.num_now)
        try:
            await script(wire)
        except ConnectionError:  # the script's write met the closed connection before the watcher's read did
            self._note_gone(wire)
            raise
        finally:
            self.num_now -= 1
            watcher.cancel()
            await asyncio.wait({watcher})

    async def _watch(self, reader: asyncio.StreamReader, wire: Wire) -> None:
        """The gateway never pipelines, so whatever comes while a script runs is the end of the connection."""
        data = await reader.read(1)
        if not data:
            self._note_gone(wire)

    def _note_gone(self, wire: Wire) -> None:
        if not wire.is_gone.is_set():
            self.num_gone += 1
            self.gone.set()
            wire.is_gone.set()

"""A TCP proxy that misbehaves on demand: latency, bandwidth, slices, limits, resets, black hole, slow close, down."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self


@dataclass(slots=True, kw_only=True)
class Toxics:
    """What is done to answers on their way to the client; may be changed while connections are open."""

    latency_s: float = 0.0
    """Each piece comes so much later."""
    bytes_per_s: float | None = None
    slice_bytes: int | None = None
    """Pieces are no larger than this, and come one by one."""
    limit_bytes: int | None = None
    """After so many bytes of answers a connection ends."""
    limit_behind: bytes = b""
    """The limit counts anew from each piece that holds these bytes, and ends no connection without them."""
    limit_ends: Literal["close", "reset"] = "close"
    is_black_hole: bool = False
    """Connections are accepted; nothing goes through in either direction."""
    is_frozen: bool = False
    """Requests go through; of the answers nothing more does."""
    resets_on_request: bool = False
    """A connection is reset when the first byte of a request comes."""
    slow_close_s: float = 0.0
    """The end of an answer's connection is passed on so much later."""


class FaultProxy:
    """Listens on a free port of 127.0.0.1 in front of a Unix socket, or of a host and port; `toxics` holds from the
    next byte on."""

    def __init__(self, upstream: Path | tuple[str, int]) -> None:
        self._upstream = upstream
        self.toxics = Toxics()
        self.num_accepted = 0
        self.num_passed = 0
        """Connections that reached the upstream."""
        self.num_open = 0
        self.bytes_up = 0
        """Bytes of requests that came, whether they went on or not."""
        self.port = 0
        self._listening: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """For a policy."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()

    async def up(self) -> None:
        """Listen, on the same port as before."""
        self._listening = socket.create_server(("127.0.0.1", self.port), backlog=100)
        self._listening.setblocking(False)
        self.port = self._listening.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._listening, self._accept, self._listening)

    async def down(self) -> None:
        """Refuse connections and cut those that are open."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        """Take one connection. Its task is known at once: `asyncio.start_server` would make it turns of the loop later,
        and a connection taken just before `down` would outlive it."""
        try:
            client, _ = listening.accept()
        except OSError:
            return  # the client is gone again
        client.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._serve(client))
        self._tasks.add(task)
        self.num_accepted += 1
        self.num_open += 1

        def end(task: asyncio.Task[None]) -> None:
            self.num_open -= 1
            self._tasks.discard(task)
            client.close()

        task.add_done_callback(end)

    async def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio does so for its own sockets only
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            await self._join(reader, writer)
        except (ConnectionError, FileNotFoundError, asyncio.CancelledError):
            pass  # one side is gone, its socket perhaps too, or the proxy goes down: both sides are closed below
        finally:
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(self._upstream, tuple):
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        else:
            up_reader, up_writer = await asyncio.open_unix_connection(str(self._upstream))
        self.num_passed += 1
        try:
            async with asyncio.TaskGroup() as pumps:
                requests = pumps.create_task(self._pump_requests(reader, writer, up_writer))
                answers = pumps.create_task(self._pump_answers(up_reader, writer))
                await asyncio.wait((requests, answers), return_when=asyncio.FIRST_COMPLETED)
                requests.cancel()
                answers.cancel()
        except* ConnectionError:
            pass  # passed on by closing both sides
        finally:
            up_writer.transport.abort()

    async def _pump_requests(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            self.bytes_up += len(data)
            if self.toxics.resets_on_request:
                reset(client)
                return
            if not self.toxics.is_black_hole:
                writer.write(data)
                await writer.drain()

    async def _pump_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        num_sent, is_limited = 0, False
        while data := await reader.read(65536):
            toxics = self.toxics
            while toxics.is_black_hole or toxics.is_frozen:
                await asyncio.sleep(0.005)
            await asyncio.sleep(toxics.latency_s)
            for piece in sliced(data, toxics.slice_bytes):
                if toxics.limit_behind and toxics.limit_behind in piece:
                    num_sent, is_limited = 0, True
                limit = toxics.limit_bytes if is_limited or not toxics.limit_behind else None
                allowed = piece if limit is None else piece[: max(limit - num_sent, 0)]
                writer.write(allowed)
                await writer.drain()
                num_sent += len(allowed)
                if len(allowed) < len(piece):
                    if toxics.limit_ends == "reset":
                        reset(writer)
                    return
                if toxics.bytes_per_s is not None:
                    await asyncio.sleep(len(piece) / toxics.bytes_per_s)
                elif toxics.slice_bytes is not None:
                    await asyncio.sleep(0)
        await asyncio.sleep(self.toxics.slow_close_s)


def sliced(data: bytes, size: int | None) -> list[bytes]:
    """The data in pieces of `size` bytes; None: in one."""
    return [data] if size is None else [data[start : start + size] for start in range(0, len(data), size)]


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST: what is under way is lost."""
    raw = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):  # closed already
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class FullBacklog:
    """A listening socket whose queue is full: connecting to it is answered by nothing at all, like a black hole.

    Linux drops the SYN of a connection for which a full accept queue has no place; dropping packets by a firewall rule
    looks the same to the client and needs privileges.
    """

    def __init__(self) -> None:
        self._listening = socket.socket()
        self._fillers: list[socket.socket] = []
        self.port = 0

    def __enter__(self) -> Self:
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen(0)
        self.port = self._listening.getsockname()[1]
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(("127.0.0.1", self.port))
            self._fillers.append(filler)
        return self

    def __exit__(self, *_: object) -> None:
        for filler in (*self._fillers, self._listening):
            filler.close()

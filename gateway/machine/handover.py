"""HandedConnections: the connections that one worker is handed by the process that accepts them.

A message is one byte with the descriptor of an accepted connection. One without a descriptor comes first: it lets the
worker start, once the control process has. The worker sends one byte when it is ready, and another when it takes no
further connection. The end of the channel is the end of all connections.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from gateway.machine.shared_counts import Cell, SharedCounts

READY: Final = b"r"
END: Final = b"e"
START: Final = b"s"
CONNECTION: Final = b"c"
CONNECTIONS_ROW: Final = "connections"
"""Name of the row of shared counts in which workers count connections that have closed."""
COUNT_S: Final = 0.05
_AT_ONCE: Final = 64


class HandedConnections:
    """A worker's end of its channel. Everything runs on the event loop."""

    def __init__(self, channel: socket.socket, counts: SharedCounts) -> None:
        self._channel = channel
        self._counts = counts
        self._cell = counts.cell(counts.row_of(CONNECTIONS_ROW), Cell.CLOSED, counts.column)
        self._num_received = 0
        self._ended = asyncio.Event()
        self._opening: set[asyncio.Task[Any]] = set()
        self._counting: asyncio.TimerHandle | None = None

    async def until_allowed(self) -> bool:
        """Wait until the worker may start; return False when the supervisor has ended."""
        self._channel.setblocking(False)
        return await asyncio.get_running_loop().sock_recv(self._channel, 1) == START

    def begin(self, make: Callable[[], asyncio.Protocol], tls: Mapping[str, Any], num_open: Callable[[], int]) -> None:
        """Serve every connection by a protocol that `make` returns; `num_open` counts those that are open."""
        loop = asyncio.get_running_loop()
        self._make, self._tls, self._num_open, self._loop = make, tls, num_open, loop
        self._channel.setblocking(False)
        loop.add_reader(self._channel.fileno(), self._receive)
        self._count()

    def announce(self) -> None:
        """Report that connections may come."""
        self._channel.send(READY)

    async def until_ended(self, timeout_s: float) -> None:
        """Wait until the last connection was handed over, or without `begin` for the channel's end; limited in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                if self._counting is None:
                    await self.until_allowed()
                else:
                    await self._ended.wait()
        if self._opening:
            await asyncio.wait(self._opening, timeout=timeout_s)

    def close(self) -> None:
        """Take no further connection; those in the channel stay there for other workers. Idempotent."""
        if self._counting is not None:
            self._counting.cancel()
            self._counting = None
            self._loop.remove_reader(self._channel.fileno())
        if self._channel.fileno() >= 0:
            with suppress(OSError):  # nobody listens any more
                self._channel.send(END, socket.MSG_DONTWAIT)
            self._channel.close()

    def _receive(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                message, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
            except BlockingIOError:
                return
            if not message:
                self._loop.remove_reader(self._channel.fileno())
                self._ended.set()
                return
            for descriptor in descriptors:
                self._num_received += 1
                task = self._loop.create_task(self._open(socket.socket(fileno=descriptor)))
                self._opening.add(task)
                task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(self._make, accepted, **self._tls)
        except OSError:  # it has gone, or its TLS handshake failed
            accepted.close()

    def _count(self) -> None:
        num_closed = self._num_received - self._num_open() - len(self._opening)
        self._counts.words[self._cell] = num_closed
        self._counting = self._loop.call_later(COUNT_S, self._count)

"""Acceptor: accepts the connections of the public port and hands each to the worker with fewest open ones.

One queue holds all connections until a worker has them, so the death of a worker loses none that it has not received.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from gateway.machine.handover import CONNECTION, READY, START

_AT_ONCE: Final = 64
_PAUSE_S: Final = 0.005
"""Pause when no worker can take a connection, or no file can be opened."""
_MAX_PENDING: Final = 256


class Channel:
    """The two ends of one worker's channel; the supervisor has both, so that what a dead worker left is not lost."""

    def __init__(self) -> None:
        self.own, self.workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.own.setblocking(False)
        self.num_handed = 0
        self.is_ready = False

    def close(self) -> None:
        """Close both ends."""
        self.own.close()
        self.workers.close()


class Acceptor:
    """Accepts from `start` to `stop`; everything runs on the event loop."""

    def __init__(
        self,
        listening: Sequence[socket.socket],
        channels: Mapping[int, Channel],
        num_closed: Callable[[int], int],
        on_ready: Callable[[int], None],
    ) -> None:
        """Create an acceptor.

        Args:
            listening: Sockets of the public listener, not blocking.
            channels: Channel of each worker.
            num_closed: Returns the connections of a worker that have closed.
            on_ready: Called with each worker that becomes ready.
        """
        self._listening = listening
        self._channels = channels
        self._num_closed = num_closed
        self._on_ready = on_ready
        self._pending: deque[socket.socket] = deque()
        """Accepted connections that no worker could take so far."""
        self._is_accepting = False
        self._is_stopped = False
        self._may_start = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Wait for workers; connections are accepted while there is one."""
        self._loop = asyncio.get_running_loop()
        for column, channel in self._channels.items():
            self._loop.add_reader(channel.own.fileno(), self._hear, column)

    def allow(self) -> None:
        """Let all workers start, now and in their later lives."""
        self._may_start = True
        for channel in self._channels.values():
            channel.own.send(START)

    def lost(self, column: int) -> None:
        """Give the connections that a dead worker has not received to the others."""
        channel = self._channels[column]
        channel.is_ready = False
        channel.num_handed = 0
        self._take_back(channel)
        if self._may_start and not self._is_stopped:
            channel.own.send(START)
        self._resume()

    def stop(self) -> None:
        """Hand over what waits in the queues, accept no more, and end every channel."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._pause()
        if self._timer is not None:
            self._timer.cancel()
        for listening in self._listening:
            with suppress(OSError):
                while len(self._pending) < _MAX_PENDING:
                    self._pending.append(listening.accept()[0])
            listening.close()
        self._hand_over_pending()
        for accepted in self._pending:
            accepted.close()
        for channel in self._channels.values():
            self._loop.remove_reader(channel.own.fileno())
            with suppress(OSError):
                channel.own.shutdown(socket.SHUT_WR)

    def _hear(self, column: int) -> None:
        channel = self._channels[column]
        with suppress(BlockingIOError):
            was_ready, channel.is_ready = channel.is_ready, channel.own.recv(64).endswith(READY)
            if channel.is_ready:
                self._on_ready(column)
            elif was_ready:  # else what is in the channel lets its next life start
                self._take_back(channel)
            self._resume()

    def _take_back(self, channel: Channel) -> None:
        """Take connections that no worker has received back from a channel, for other workers."""
        channel.workers.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                message, descriptors, _, _ = socket.recv_fds(channel.workers, 1, 1)
                if not message:
                    break
                self._pending.extend(socket.socket(fileno=descriptor) for descriptor in descriptors)

    def _resume(self) -> None:
        """Go on accepting, if a worker is ready."""
        self._timer = None
        self._hand_over_pending()
        is_possible = not self._pending and any(channel.is_ready for channel in self._channels.values())
        if self._is_stopped or self._is_accepting:
            return
        if is_possible:
            self._is_accepting = True
            for listening in self._listening:
                self._loop.add_reader(listening.fileno(), self._accept, listening)
        elif self._pending:
            self._timer = self._loop.call_later(_PAUSE_S, self._resume)

    def _pause(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            for listening in self._listening:
                self._loop.remove_reader(listening.fileno())

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # no file can be opened just now
                self._wait()
                return
            self._pending.append(accepted)
            self._hand_over_pending()
            if self._pending:
                self._wait()
                return

    def _wait(self) -> None:
        """Accept nothing for a moment."""
        self._pause()
        if self._timer is None:
            self._timer = self._loop.call_later(_PAUSE_S, self._resume)

    def _hand_over_pending(self) -> None:
        while self._pending:
            if not self._hand_over(self._pending[0]):
                return
            self._pending.popleft().close()

    def _hand_over(self, accepted: socket.socket) -> bool:
        """Hand a connection to the worker with fewest, else to the next; False when none can take it."""
        for _, _, column in sorted(
            (channel.num_handed - self._num_closed(column), channel.num_handed, column)
            for column, channel in self._channels.items()
            if channel.is_ready
        ):
            channel = self._channels[column]
            try:
                socket.send_fds(channel.own, [CONNECTION], [accepted.fileno()])
            except OSError:  # its channel is full, as a worker's that hangs
                continue
            channel.num_handed += 1
            return True
        return False

"""Frames to the front."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.core.inbox import FrontGoneError
from engine.protocol import Phase, ToFront, encode_frame


class Outbox:
    """Writer of whole frames, which waits while the front reads slowly, so nothing accumulates in the core."""

    def __init__(self, sock: socket.socket, clock: Callable[[], float] = time.monotonic) -> None:
        self._sock = sock
        self._clock = clock

    def send(self, message: ToFront) -> None:
        """Send a message to the front.

        Raises:
            FrontGoneError: The front no longer reads.
        """
        try:
            self._sock.sendall(encode_frame(message))
        except OSError as error:
            raise FrontGoneError(str(error)) from error

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a start-up phase and report it when it ends well."""
        started_at = self._clock()
        yield
        self.send(Phase(name=name, seconds=self._clock() - started_at))

"""Messages from the front, stamped with their time of receipt by a thread that does nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from engine.protocol import FrameError, FrameSplitter, ToCore, decode_to_core

if TYPE_CHECKING:  # they import torch, before which the core sets up its process
    from engine.lora.adapter_table import AdapterRead
    from engine.sampling.grammar_compiler import GrammarDone

_RECEIVE_BYTES = 1 << 18


class Received(NamedTuple):
    """A message from the front, the compiler of grammars or a reader of adapters, and the instant at which it came."""

    message: ToCore | GrammarDone | AdapterRead
    at: float


class FrontGoneError(ConnectionError):
    """Error for a connection that the front closed or whose protocol it broke; the core has no client any more."""


class Inbox:
    """Receiver of frames from the socket while steps run; `drain` returns them between steps."""

    def __init__(self, sock: socket.socket, clock: Callable[[], float]) -> None:
        self._sock = sock
        self._clock = clock
        self._queue: SimpleQueue[Received | FrontGoneError] = SimpleQueue()
        self._thread = threading.Thread(target=self._read, name="inbox", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def post(self, done: GrammarDone | AdapterRead) -> None:
        """Hand over what became of a grammar or an adapter; from any thread."""
        self._queue.put(Received(done, self._clock()))

    def drain(self, *, wait: bool) -> list[Received]:
        """Return the messages since the last call; with `wait`, at least one. Raises FrontGoneError at the end."""
        received: list[Received] = []
        if wait:
            received.append(self._checked(self._queue.get()))
        while True:
            try:
                received.append(self._checked(self._queue.get_nowait()))
            except Empty:
                return received

    def _checked(self, item: Received | FrontGoneError) -> Received:
        if isinstance(item, FrontGoneError):
            raise item
        return item

    def _read(self) -> None:
        splitter = FrameSplitter()
        try:
            while data := self._sock.recv(_RECEIVE_BYTES):
                now = self._clock()
                for body in splitter.feed(data):
                    self._queue.put(Received(decode_to_core(body), now))
            self._queue.put(FrontGoneError("the front closed the connection"))
        except (OSError, FrameError) as error:
            self._queue.put(FrontGoneError(str(error)))

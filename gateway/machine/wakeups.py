"""Wakeups: one process of a gateway lets another look at its queues at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

_READ_BYTES: Final = 4096


class Waits(Protocol):
    """Something with waiting requests."""

    def look_again(self) -> None:
        """Grant what may be granted by now."""
        ...


class Wakeups:
    """The pipes of all processes: this one reads its own and writes to any."""

    def __init__(self, own: int, others: Sequence[int]) -> None:
        """Use inherited descriptors: `own` is read, `others` are written, one for each process in order."""
        self._own = own
        self._others = others
        self._waiting: dict[Waits, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """Listen on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._own, self._look)

    def end(self) -> None:
        """Listen no more."""
        if self._loop is not None:
            self._loop.remove_reader(self._own)
            self._loop = None

    def add(self, waiting: Waits) -> None:
        """Look at this one when another process wakes this one."""
        self._waiting[waiting] = None

    def discard(self, waiting: Waits) -> None:
        """Forget one whose queue is empty."""
        self._waiting.pop(waiting, None)

    def wake(self, column: int) -> None:
        """Wake a process; a full pipe means that it will wake anyway."""
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._others[column], b"\0")

    def _look(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._own, _READ_BYTES)
        for waiting in tuple(self._waiting):
            waiting.look_again()

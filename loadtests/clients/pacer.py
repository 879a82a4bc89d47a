"""Waiting for an instant to within some 50 µs; an event loop's own timers are as coarse as a millisecond."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from types import TracebackType
from typing import Self

from loadtests.clients.http_client import clock

_CLOCK_MONOTONIC = 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class Pacer:
    """A kernel timer on the running loop (Linux); elsewhere the loop's own."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._fd = -1

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._libc = ctypes.CDLL(None, use_errno=True)
        if hasattr(self._libc, "timerfd_create"):
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
            if self._fd < 0:
                raise OSError(ctypes.get_errno(), "timerfd_create")
            self._loop.add_reader(self._fd, self._fire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    async def until(self, at: float) -> None:
        """Returns at `at` (of `loadtests.clients.http_client.clock`) or, when that has passed, at once."""
        delay_s = at - clock()
        if delay_s <= 0:
            await asyncio.sleep(0)  # behind schedule: answers must still be read
            return
        if self._fd < 0:
            await asyncio.sleep(delay_s)
            return
        self._waiter = self._loop.create_future()
        seconds = int(delay_s)
        # struct itimerspec: interval (none), then the first expiry; all-zero would disarm it
        spec = struct.pack("llll", 0, 0, seconds, max(1, int((delay_s - seconds) * 1e9)))
        if self._libc.timerfd_settime(self._fd, 0, spec, None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        await self._waiter

    def _fire(self) -> None:
        os.read(self._fd, 8)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

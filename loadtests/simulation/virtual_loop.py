"""An event loop whose clock jumps: hours of timers run in the time that their callbacks take, always in one order.

There is no I/O on it. Whatever would wait for a socket or a thread waits for ever, and that is an error at once.
"""

from __future__ import annotations

import asyncio
import selectors
from asyncio import Handle, TimerHandle
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_MIN_CANCELLED: Final = 1000
"""Fewer timers that were called off are in nobody's way."""


class NothingLeft(RuntimeError):
    """Every task waits for something that no timer will bring."""


class _NoFiles(selectors.BaseSelector):
    """Files may be registered and never become ready."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        file_number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, file_number, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()


class _Timer(TimerHandle):
    __slots__ = ("is_set",)
    is_set: bool
    """It waits for its time, called off or not."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0 and moves only when nothing is ready to run; callbacks themselves take no time.

    The turn of the loop is written anew because a simulation makes millions of them: there are no files to check, and
    timers are compared by numbers, which for equal instants is the order in which they were set.
    """

    _ready: deque[Handle]
    _stopping: bool

    def __init__(self) -> None:
        self._instant = [0.0]
        self._timers: list[tuple[float, int, _Timer]] = []
        self._num_set = self._num_cancelled = 0
        super().__init__(_NoFiles())
        self._clock_resolution = 1e-9
        """What adding up waits may lose: a timer within it of now is due."""
        self.clock: Callable[[], float] = partial(self._instant.__getitem__, 0)
        """The same as `time`, at half the price: for whatever calls dozens of times a request."""

    def time(self) -> float:
        """Virtual seconds."""
        return self._instant[0]

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        timer.is_set = True
        self._num_set += 1
        heappush(self._timers, (when, self._num_set, timer))
        return timer

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> Handle:
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _run_once(self) -> None:
        """One turn: move the clock if nothing is ready, then run what is."""
        timers, ready, instant = self._timers, self._ready, self._instant
        while timers and timers[0][2].cancelled():
            heappop(timers)
            self._num_cancelled -= 1
        if not ready and not self._stopping:
            if not timers:
                raise NothingLeft("every task waits and no timer is set")
            wait_s = timers[0][0] - instant[0]
            if wait_s > 0:
                instant[0] += wait_s
        due_at = instant[0] + self._clock_resolution
        while timers and timers[0][0] < due_at:
            timer = heappop(timers)[2]
            timer.is_set = False
            if timer.cancelled():
                self._num_cancelled -= 1
            else:
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """It is skipped when its time comes; when half of them are such, they are taken out before."""
        if not isinstance(handle, _Timer) or not handle.is_set:
            return
        self._num_cancelled += 1
        if self._num_cancelled >= _MIN_CANCELLED and 2 * self._num_cancelled > len(self._timers):
            self._timers[:] = [entry for entry in self._timers if not entry[2].cancelled()]
            heapify(self._timers)
            self._num_cancelled = 1  # this one, which is marked next


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """The result of `main` on a fresh virtual loop; tasks it leaves behind are cancelled. Raises NothingLeft."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)

"""An event loop whose clock jumps: hours of timers run in the time that their callbacks take, always in one order.

There is no I/O on it. Whatever would wait for a socket or a thread waits for ever, and that is an error at once.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class NothingLeft(RuntimeError):
    """Every task waits for something that no timer will bring."""


class _JumpingSelector(selectors.BaseSelector):
    """Waits by moving the clock; files may be registered and never become ready."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        file_number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, file_number, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeft("every task waits and no timer is set")
        if timeout > 0:
            self.now += timeout
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0 and moves only when nothing is ready to run; callbacks themselves take no time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self._clock_resolution = 1e-9
        """What adding up waits may lose: a timer within it of now is due."""

    def time(self) -> float:
        """Virtual seconds; give this method to whatever wants a clock."""
        return self._jumping.now


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """The result of `main` on a fresh virtual loop; tasks it leaves behind are cancelled. Raises NothingLeft."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)

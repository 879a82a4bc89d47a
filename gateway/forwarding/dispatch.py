"""Dispatch: a request's way to a deployment, with a task that starts once the request has to wait.

Time spent waiting for a deployment is free. Time in which this event loop works on the task, or cleans up after an
unwanted answer, occupies a core; `worked_s` is that time in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

from gateway.timeline import Clock


class Dispatch:
    """An awaitable, for one await, with the result and errors of its coroutine; a cancellation reaches it."""

    __slots__ = ("_clock", "_coroutine", "_on_first_wait", "worked_s")

    def __init__(
        self, coroutine: Coroutine[Any, Any, None], clock: Clock, on_first_wait: Callable[[], object] | None = None
    ) -> None:
        """Wrap a coroutine; its first wait calls `on_first_wait`, whose errors are raised in the coroutine."""
        self._coroutine = coroutine
        self._clock = clock
        self._on_first_wait = on_first_wait
        self.worked_s = 0.0
        """Seconds that the coroutine has worked between its waits."""

    def __await__(self) -> Generator[Any, Any, None]:
        go_on: Callable[[], Any] = partial(self._coroutine.send, None)
        step = go_on
        while True:
            began_at = self._clock()
            try:
                awaited = step()
            except StopIteration:
                return
            finally:
                self.worked_s += self._clock() - began_at
                step = go_on  # an error that is stored here would hold this frame
            try:
                self._note_wait()
                yield awaited
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as error:  # a cancellation too: it belongs to what is waiting
                step = partial(self._coroutine.throw, error)

    def _note_wait(self) -> None:
        call, self._on_first_wait = self._on_first_wait, None
        if call is not None:
            call()

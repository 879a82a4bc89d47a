"""GuardedStore: a Store behind a breaker and a timeout for each operation, with measurements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.breaker import FIRST_PAUSE_S, Breaker
from gateway.store.forwarding import ForwardingStore
from gateway.timeline import Clock

R = TypeVar("R")

CONNECT_S: Final = 1.0
"""Timeout of the first answer of a store that was lost, or never seen."""
LAG_S: Final = 0.002
"""Lateness of a timer that means a busy event loop, not a slow store."""
CHECK_S: Final = 2.0
"""Time between two checks of the store."""

_SURE: Final = frozenset(
    {StoreLoss.DOWN, StoreLoss.READ_ONLY, StoreLoss.REFUSED, StoreLoss.EVICTING, StoreLoss.CORRUPT}
)


class StoreObserver(Protocol):
    """Gets the results of operations."""

    def took(self, operation: str, seconds: float) -> None:
        """Take the duration of an operation."""
        ...

    def failed(self, operation: str, reason: StoreLoss) -> None:
        """Take a failed operation; there is none while the breaker is open."""
        ...

    def is_up(self, is_up: bool, reason: str) -> None:
        """Take a change of whether the store is usable."""
        ...


class GuardedStore(ForwardingStore):
    """A Store that answers or raises StoreUnavailable within `timeout_s`, and at once while the breaker is open."""

    def __init__(self, store: Store, *, timeout_s: float, clock: Clock, observer: StoreObserver) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._clock = clock
        self._observer = observer
        self._breaker = Breaker()
        self._is_up: bool | None = None
        self._running: set[asyncio.Task[Any]] = set()

    @property
    def is_up(self) -> bool:
        """Return whether the last operation succeeded."""
        return self._is_up is True

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        return await self._within(operation, lambda: getattr(self._store, operation)(*arguments, **options))

    async def ping(self) -> None:
        """Ping the store, whatever the breaker's state; closes the breaker, or leaves it open.

        A first try may take as long as connecting takes; only a second one, on a warm connection, is held to the
        operation timeout. So a store that is merely slow stays lost, instead of coming and going.
        """
        if not self._is_up:
            await self._run("connect", self._store.ping, timeout_s=max(CONNECT_S, self._timeout_s), closes=False)
        await self._run("ping", self._store.ping, timeout_s=self._timeout_s, closes=True)

    async def aclose(self) -> None:
        """Cancel what is under way and close the store."""
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._store.aclose()

    async def watch(self) -> None:
        """Check the store until cancelled, and a lost one at growing intervals."""
        checked_at = -CHECK_S
        while True:
            now = self._clock()
            is_closed = self._breaker.is_closed
            if self._breaker.is_trial_due(now) or (is_closed and now - checked_at >= CHECK_S):
                checked_at = now
                with suppress(StoreUnavailable):  # the observer has the error
                    await self.ping()
            await asyncio.sleep(CHECK_S / 10 if self._breaker.is_closed else FIRST_PAUSE_S / 2)

    async def _within(self, operation: str, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        if not self._breaker.is_closed:
            raise StoreUnavailable(StoreLoss.DOWN, "not tried: it failed a moment ago", was_sent=False)
        return await self._run(operation, work, timeout_s=self._timeout_s, closes=True)

    async def _run(
        self, operation: str, work: Callable[[], Coroutine[Any, Any, R]], *, timeout_s: float, closes: bool
    ) -> R:
        """Run the operation as a task of its own: its waiter may leave without breaking off a command."""
        task = asyncio.get_running_loop().create_task(self._limited(operation, work, timeout_s, closes=closes))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # its waiter has it, if there still is one

    async def _limited(
        self, operation: str, work: Callable[[], Coroutine[Any, Any, R]], timeout_s: float, *, closes: bool
    ) -> R:
        started_at = self._clock()
        patience = _Patience(timeout_s)
        try:
            result = await work()
        except asyncio.CancelledError:
            if not patience.has_ended_it():
                raise
            error = StoreUnavailable(StoreLoss.SLOW, f"{operation}: no answer within {timeout_s * 1000:.0f} ms")
            self._note_failure(operation, error)
            raise error from None
        except StoreUnavailable as error:
            if error.reason is StoreLoss.FULL:
                self._note_full(operation)
            else:
                self._note_failure(operation, error)
            raise
        finally:
            patience.end()
        if closes:
            self._note_success(operation, self._clock() - started_at)
        return result

    def _note_success(self, operation: str, seconds: float) -> None:
        self._observer.took(operation, seconds)
        self._note_answer()

    def _note_full(self, operation: str) -> None:
        """Note a full store: it answers, can be read and may take the next write."""
        self._observer.failed(operation, StoreLoss.FULL)
        self._note_answer()

    def _note_answer(self) -> None:
        self._breaker.note_success()
        if self._is_up is not True:
            self._is_up = True
            self._observer.is_up(True, "")

    def _note_failure(self, operation: str, error: StoreUnavailable) -> None:
        self._breaker.note_failure(self._clock(), is_sure=error.reason in _SURE)
        self._observer.failed(operation, error.reason)
        if self._is_up is not False and not self._breaker.is_closed:
            self._is_up = False
            self._observer.is_up(False, str(error))


class _Patience:
    """Cancels the task that made it after `timeout_s` in which the event loop could receive the answer.

    The client library drops the connection of a command that was broken off so.
    """

    __slots__ = ("_due_at", "_has_waited_on", "_is_over", "_loop", "_task", "_timeout_s", "_timer")

    def __init__(self, timeout_s: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._has_waited_on = False
        self._is_over = False
        self._wait()

    def has_ended_it(self) -> bool:
        """Return whether the cancellation that arrived came from here."""
        return self._is_over and self._task.uncancel() == 0

    def end(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def _wait(self) -> None:
        self._due_at = self._loop.time() + self._timeout_s
        self._timer = self._loop.call_later(self._timeout_s, self._due)

    def _due(self) -> None:
        if self._loop.time() - self._due_at > LAG_S and not self._has_waited_on:
            self._has_waited_on = True  # the loop was away; the answer may be here
            self._wait()
            return
        self._is_over = True
        self._task.cancel()

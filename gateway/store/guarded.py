"""GuardedStore: a Store behind breakers and a timeout for each operation, with measurements.

Each server of a Cluster has a breaker of its own, so that spaces on the others work on while one is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.breaker import FIRST_PAUSE_S, Breaker
from gateway.store.forwarding import OuterStore
from gateway.timeline import Clock

R = TypeVar("R")

CONNECT_S: Final = 1.0
"""Least timeout of the first answer of a store that was lost, or never seen."""
CONNECT_TIMEOUTS: Final = 2
"""Operation timeouts that connecting may take: a handshake and a login go before the first answer."""
LAG_S: Final = 0.002
"""Lateness of a timer that means a busy event loop, not a slow store."""
CHECK_S: Final = 2.0
"""Time between two checks of the store."""

_REFUSALS: Final = frozenset({StoreLoss.READ_ONLY, StoreLoss.REFUSED, StoreLoss.EVICTING, StoreLoss.CORRUPT})
"""Answers of the store itself. They count whenever their operation began, since reads may succeed beside them."""
_SURE: Final = _REFUSALS | {StoreLoss.DOWN}
_ANSWERS: Final = frozenset({StoreLoss.FULL, StoreLoss.MOVING})
"""Refusals of single operations by a store that works."""


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


@dataclass(frozen=True, slots=True)
class _Attempt(Generic[R]):
    """One operation at one server."""

    operation: str
    work: Callable[[], Coroutine[Any, Any, R]]
    node: str
    timeout_s: float
    closes: bool = True
    """True if an answer closes the breaker."""


class GuardedStore(OuterStore):
    """A Store that answers or raises StoreUnavailable within `timeout_s`, and at once while a breaker is open."""

    def __init__(
        self,
        store: Store,
        *,
        timeout_s: float,
        clock: Clock,
        observer: StoreObserver,
        on_back: Callable[[], None] = lambda: None,
    ) -> None:
        """Guard a store.

        Args:
            store: The store itself.
            timeout_s: Longest time of one operation.
            clock: Monotonic clock.
            observer: Gets the results of operations.
            on_back: Called when a server that was lost answers again.
        """
        super().__init__(store)
        self._timeout_s = timeout_s
        self._clock = clock
        self._observer = observer
        self._on_back = on_back
        self._connect_s = max(CONNECT_S, CONNECT_TIMEOUTS * timeout_s)
        self._breakers: dict[str, Breaker] = {}
        self._is_up: bool | None = None
        self._running: set[asyncio.Task[Any]] = set()

    @property
    def is_up(self) -> bool:
        """Return whether the store answered and no server of it is lost."""
        return self._is_up is True

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        node = self._store.node_of(arguments[0]) if arguments else ""
        if not self._breaker(node).is_closed:
            raise StoreUnavailable(StoreLoss.DOWN, "not tried: it failed a moment ago", was_sent=False)
        work = partial(getattr(self._store, operation), *arguments, **options)
        return await self._run(_Attempt(operation, work, node, self._timeout_s))

    async def reach(self) -> None:
        """Ping every server, the ones that the first answer names included. Raises StoreUnavailable."""
        await self.ping(self._store.nodes()[0])
        await asyncio.gather(*(self.ping(node) for node in self._store.nodes()))

    async def ping(self, node: str = "") -> None:
        """Ping a server, whatever its breaker's state; closes the breaker, or leaves it open.

        A first try may take as long as connecting takes; only a second one, on a warm connection, is held to the
        operation timeout. So a store that is merely slow stays lost, instead of coming and going.
        """
        work = partial(self._store.ping, node)
        if not self._is_up or not self._breaker(node).is_closed:
            await self._run(_Attempt("connect", work, node, self._connect_s, closes=False))
        await self._run(_Attempt("ping", work, node, self._timeout_s))

    async def aclose(self) -> None:
        """Cancel what is under way and close the store."""
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await super().aclose()

    def expect_back(self) -> None:
        """Have lost servers tried at the watch's next look: another connection has just found one."""
        for breaker in self._breakers.values():
            breaker.note_hint()

    async def watch(self) -> None:
        """Check the servers until cancelled, and a lost one at growing intervals.

        A trial does not wait for the one before: that may hang at a primary which was replaced meanwhile.
        """
        checked_at = -CHECK_S
        async with asyncio.TaskGroup() as trials:
            while True:
                now = self._clock()
                is_check_due = now - checked_at >= CHECK_S
                for node in self._followed():
                    breaker = self._breaker(node)
                    if breaker.is_trial_due(now):
                        breaker.note_trial(now)
                        trials.create_task(self._try(node))
                    elif breaker.is_closed and is_check_due:
                        trials.create_task(self._try(node))
                if is_check_due:
                    checked_at = now
                await asyncio.sleep(FIRST_PAUSE_S / 2 if self._are_some_open else CHECK_S / 10)

    async def _try(self, node: str) -> None:
        with suppress(StoreUnavailable):  # the observer has the error
            await self.ping(node)

    def _followed(self) -> tuple[str, ...]:
        """Return the servers of now, and forget those that are no more."""
        nodes = self._store.nodes()
        gone = self._breakers.keys() - set(nodes)
        for node in gone:
            del self._breakers[node]
        if gone and self._is_up is False and not self._are_some_open:
            self._set_up("")
        return nodes

    def _breaker(self, node: str) -> Breaker:
        breaker = self._breakers.get(node)
        if breaker is None:
            breaker = self._breakers[node] = Breaker()
        return breaker

    @property
    def _are_some_open(self) -> bool:
        return any(not breaker.is_closed for breaker in self._breakers.values())

    async def _run(self, attempt: _Attempt[R]) -> R:
        """Run the operation as a task of its own: its waiter may leave without breaking off a command."""
        task = asyncio.get_running_loop().create_task(self._limited(attempt))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # its waiter has it, if there still is one

    async def _limited(self, attempt: _Attempt[R]) -> R:
        started_at = self._clock()
        patience = _Patience(attempt.timeout_s)
        try:
            result = await attempt.work()
        except asyncio.CancelledError:
            if not patience.has_ended_it():
                raise
            late = f"{attempt.operation}: no answer within {attempt.timeout_s * 1000:.0f} ms"
            error = StoreUnavailable(StoreLoss.SLOW, late)
            self._note_failure(attempt, error, began_at=started_at)
            raise error from None
        except StoreUnavailable as error:
            self._note_failure(attempt, error, began_at=started_at)
            raise
        finally:
            patience.end()
        if attempt.closes:
            self._observer.took(attempt.operation, self._clock() - started_at)
            self._note_answer(attempt.node)
        return result

    def _note_answer(self, node: str) -> None:
        breaker = self._breaker(node)
        was_open = not breaker.is_closed
        breaker.note_success(self._clock())
        if self._is_up is not True and not self._are_some_open:
            self._set_up("")
        if was_open:
            self._on_back()

    def _note_failure(self, attempt: _Attempt[R], error: StoreUnavailable, *, began_at: float) -> None:
        """Note a failure; a store that has an answer to it can be read, and may take the next write."""
        self._observer.failed(attempt.operation, error.reason)
        if error.reason in _ANSWERS:
            self._note_answer(attempt.node)
            return
        if attempt.node and attempt.node not in self._store.nodes():
            return  # replaced: its spaces are elsewhere
        breaker, now = self._breaker(attempt.node), self._clock()
        began_at = now if error.reason in _REFUSALS else began_at
        breaker.note_failure(now, began_at=began_at, is_sure=error.reason in _SURE)
        if self._is_up is not False and not breaker.is_closed:
            self._set_up(f"{attempt.node}: {error}" if attempt.node else str(error), is_up=False)

    def _set_up(self, reason: str, *, is_up: bool = True) -> None:
        self._is_up = is_up
        self._observer.is_up(is_up, reason)


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

"""Open loop: requests leave when they are due, whether or not earlier ones were answered.

Latency counts from the instant at which a request was due, not from the one at which it could be written. A closed
loop stops sending while the server stands still and so never sees the wait ("coordinated omission"); this one does.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import random
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from loadtests.clients.http_client import Address, Exchange, LoadConnection, OnPiece, clock

_CLOCK_MONOTONIC = 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


def poisson_arrivals(rate_per_s: float, seconds: float, rng: random.Random) -> Iterator[float]:
    """Yield instants, from 0, of a Poisson process."""
    at = rng.expovariate(rate_per_s)
    while at < seconds:
        yield at
        at += rng.expovariate(rate_per_s)


@dataclass(slots=True, eq=False)
class Call:
    """One request of a schedule and what became of it; instants are of `http_client.clock`."""

    at_s: float
    """When it is due, from the start of the run."""
    request: Callable[[], bytes]
    """Made when it is sent: a schedule of long prompts would not fit into memory."""
    on_piece: OnPiece | None = None
    leaves_after_s: float | None = None
    """The client closes so long after the request was due; None: it waits."""
    due_at: float = 0.0
    sent_at: float = 0.0
    left_at: float = 0.0
    exchange: Exchange | None = None
    """None until it ended."""
    head: bytes = b""
    """Of the response, in lower case."""
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """Return whether nothing more will come of it."""
        return self.exchange is not None or self.error is not None


class OpenLoop:
    """Offers schedules to one address; connections are opened as needed, up to a limit, and reused."""

    def __init__(self, address: Address, *, max_connections: int = 100_000) -> None:
        self._address = address
        self._max_connections = max_connections
        self._idle: list[LoadConnection] = []
        self._num_open = 0
        self._waiting: deque[Call] = deque()
        """Due, and without a connection."""
        self._openers: set[asyncio.Task[None]] = set()
        self._busy: dict[Call, LoadConnection] = {}

    async def run(self, calls: Sequence[Call], *, warm: int = 0, drain_s: float = 60.0) -> None:
        """Send every call when it is due; give up what is unanswered `drain_s` after the last."""
        while len(self._idle) < min(warm, self._max_connections):
            self._idle.append(await LoadConnection.open(self._address))
            self._num_open += 1
        started_at = clock()
        with Pacer() as pacer:
            for call in calls:
                call.due_at = started_at + call.at_s
                await pacer.until(call.due_at)
                self._offer(call)
        deadline = clock() + drain_s
        pending = list(calls)
        while (pending := [call for call in pending if not call.is_over]) and clock() < deadline:
            await asyncio.sleep(0.005)
        self._waiting.clear()
        for call in pending:
            call.error = "not answered in time"
            if (connection := self._busy.get(call)) is not None:
                connection.close()

    async def aclose(self) -> None:
        """Close every connection."""
        for task in self._openers:
            task.cancel()
        await asyncio.gather(*self._openers, return_exceptions=True)
        for connection in (*self._idle, *self._busy.values()):
            connection.close()
        self._idle.clear()

    def _offer(self, call: Call) -> None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                self._start(connection, call)
                return
            self._num_open -= 1
        self._waiting.append(call)
        if self._num_open < self._max_connections:
            self._num_open += 1
            task = asyncio.ensure_future(self._open())
            self._openers.add(task)
            task.add_done_callback(self._openers.discard)

    async def _open(self) -> None:
        try:
            connection = await LoadConnection.open(self._address)
        except OSError as error:
            self._num_open -= 1
            if self._waiting:
                self._waiting.popleft().error = str(error)
            return
        self._use(connection)

    def _use(self, connection: LoadConnection) -> None:
        if self._waiting:
            self._start(connection, self._waiting.popleft())
        else:
            self._idle.append(connection)

    def _start(self, connection: LoadConnection, call: Call) -> None:
        leaving: asyncio.TimerHandle | None = None

        def leave() -> None:
            call.left_at = clock()
            connection.close()

        def on_end(exchange: Exchange) -> None:
            if leaving is not None:
                leaving.cancel()
            self._busy.pop(call, None)
            call.exchange, call.head = exchange, connection.scanner.head
            if connection.is_open:
                self._use(connection)
            else:
                self._num_open -= 1

        call.sent_at = clock()
        self._busy[call] = connection
        if call.leaves_after_s is not None:
            delay_s = call.due_at + call.leaves_after_s - call.sent_at
            leaving = asyncio.get_running_loop().call_later(max(delay_s, 0.0), leave)
        connection.start(call.request(), on_end, call.on_piece)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoopResult:
    """What became of a schedule."""

    latencies_s: list[float]
    """From the scheduled instant to the last byte, successful requests only."""
    lateness_s: list[float]
    """From the scheduled instant to the write: what the client itself added."""
    num_failed: int
    wall_s: float


async def run_open_loop(
    address: Address,
    request: bytes | Sequence[bytes],
    arrivals: Sequence[float],
    *,
    warm: int = 8,
    drain_s: float = 10.0,
    max_connections: int = 1024,
) -> OpenLoopResult:
    """Send at every instant of `arrivals` (seconds from now); of several requests each is sent in turn."""
    requests = itertools.cycle([request] if isinstance(request, bytes) else request)
    calls = [Call(at_s, lambda data=data: data) for at_s, data in zip(arrivals, requests, strict=False)]  # type: ignore[misc]
    loop = OpenLoop(address, max_connections=max_connections)
    started_at = clock()
    await loop.run(calls, warm=warm, drain_s=drain_s)
    wall_s = clock() - started_at
    answered = [call.exchange.ended_at - call.due_at for call in calls if call.exchange and call.exchange.is_ok]
    await loop.aclose()
    return OpenLoopResult(
        latencies_s=answered,
        lateness_s=[call.sent_at - call.due_at for call in calls if call.sent_at],
        num_failed=len(calls) - len(answered),
        wall_s=wall_s,
    )


class Pacer:
    """Waits for an instant to within some 50 µs, by a kernel timer (Linux); elsewhere by the loop's own."""

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
        """Returns at `at` (of `http_client.clock`) or, when that has passed, at once."""
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

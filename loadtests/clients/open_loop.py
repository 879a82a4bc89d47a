"""Open loop: requests leave when they are due, whether or not earlier ones were answered.

Latency counts from the instant at which a request was due, not from the one at which it could be written. A closed
loop stops asking while the server stands still and so never sees the wait ("coordinated omission"); this one does.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loadtests.clients.http_client import Address, Exchange, LoadConnection, clock
from loadtests.clients.pacer import Pacer


def poisson_arrivals(rate_per_s: float, seconds: float, rng: random.Random) -> Iterator[float]:
    """Instants, from 0, of a Poisson process."""
    at = rng.expovariate(rate_per_s)
    while at < seconds:
        yield at
        at += rng.expovariate(rate_per_s)


def constant_arrivals(rate_per_s: float, seconds: float) -> Iterator[float]:
    """Instants, from 0, at equal distances."""
    return (number / rate_per_s for number in range(int(rate_per_s * seconds)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoopResult:
    """What became of a schedule."""

    latencies_s: list[float]
    """From the scheduled instant to the last byte, successful requests only."""
    lateness_s: list[float]
    """From the scheduled instant to the write: what the client itself added."""
    num_failed: int
    wall_s: float


class OpenLoop:
    """Offers one schedule to one address; connections are opened as needed, up to a limit, and reused."""

    def __init__(self, address: Address, request: bytes | Sequence[bytes], *, max_connections: int = 1024) -> None:
        """Of several requests each is sent in turn."""
        self._address = address
        self._requests = itertools.cycle([request] if isinstance(request, bytes) else request)
        self._max_connections = max_connections
        self._idle: list[LoadConnection] = []
        self._num_open = 0
        self._due: deque[float] = deque()
        """Scheduled instants that wait for a connection."""
        self._openers: set[asyncio.Task[None]] = set()
        self._latencies: list[float] = []
        self._lateness: list[float] = []
        self._num_failed = 0
        self._num_ended = 0

    async def run(self, arrivals: Sequence[float], *, warm: int = 8, drain_s: float = 10.0) -> OpenLoopResult:
        """Send at every instant of `arrivals` (seconds from now); unanswered `drain_s` after the last is failed."""
        self._idle = [await LoadConnection.open(self._address) for _ in range(min(warm, self._max_connections))]
        self._num_open = len(self._idle)
        started_at = clock()
        with Pacer() as pacer:
            for offset in arrivals:
                await pacer.until(started_at + offset)
                self._offer(started_at + offset)
        deadline = clock() + drain_s
        while self._num_ended < len(arrivals) and clock() < deadline:
            await asyncio.sleep(0.005)
        wall_s = clock() - started_at
        num_unanswered = len(arrivals) - self._num_ended
        await self._close()
        return OpenLoopResult(
            latencies_s=self._latencies,
            lateness_s=self._lateness,
            num_failed=self._num_failed + num_unanswered,
            wall_s=wall_s,
        )

    async def _close(self) -> None:
        for task in self._openers:
            task.cancel()
        await asyncio.gather(*self._openers, return_exceptions=True)
        for connection in self._idle:
            connection.close()

    def _offer(self, due_at: float) -> None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                self._start(connection, due_at)
                return
            self._num_open -= 1
        self._due.append(due_at)
        if self._num_open < self._max_connections:
            self._num_open += 1
            task = asyncio.ensure_future(self._open())
            self._openers.add(task)
            task.add_done_callback(self._openers.discard)

    async def _open(self) -> None:
        try:
            connection = await LoadConnection.open(self._address)
        except OSError:
            self._num_open -= 1
            if self._due:
                self._due.popleft()
                self._num_failed += 1
                self._num_ended += 1
            return
        self._use(connection)

    def _use(self, connection: LoadConnection) -> None:
        if self._due:
            self._start(connection, self._due.popleft())
        else:
            self._idle.append(connection)

    def _start(self, connection: LoadConnection, due_at: float) -> None:
        def on_end(exchange: Exchange) -> None:
            self._num_ended += 1
            if exchange.is_ok:
                self._latencies.append(exchange.ended_at - due_at)
            else:
                self._num_failed += 1
            if connection.is_open:
                self._use(connection)
            else:
                self._num_open -= 1

        self._lateness.append(clock() - due_at)
        connection.start(next(self._requests), on_end)

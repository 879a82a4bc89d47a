"""ConnectionPool: the connections of one deployment, idle, busy and expired.

All state is `_idle` (a dict in order of release, the last used at its end), `_busy` and a count of connects under way.
Nothing here waits. A request takes the last used idle connection, or the right to open one, or is refused. Without a
queue, no cancellation can leave a place assigned to a request that is gone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from gateway.upstreams.http1.connection import Clock, Connection
from gateway.upstreams.http1.errors import PoolFull, UpstreamError

_CROWD: Final = 8
"""Number of busy connections below which none is made ahead of need."""
_BUSY_PER_SPARE: Final = 8
_MAX_SPARES: Final = 8
"""Largest number of spares: about as many requests arrive while one is made, at a thousand streams a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """Bounds of one deployment's pool."""

    max_connections: int = 512
    """Number of connections; above the deployment's permit limit, so every permit finds one."""
    idle_s: float = 3.0
    """Seconds of idleness after which a connection is closed.

    It is below the server's keep-alive, so the gateway closes first. Common servers keep 5 s, the bundled engine 75 s.
    """
    lifetime_s: float | None = 600.0
    """Age in seconds beyond which a connection is not reused, so load follows changed addresses; None for no limit."""

    def __post_init__(self) -> None:
        if self.max_connections < 1:
            raise ValueError(f"max_connections: expected a positive integer, got {self.max_connections}")
        if self.idle_s <= 0 or (self.lifetime_s is not None and self.lifetime_s <= 0):
            raise ValueError("idle_s and lifetime_s: expected positive numbers")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """Counts of a pool at one instant."""

    num_idle: int
    num_busy: int
    num_connecting: int
    num_closing: int
    num_connected_total: int
    num_reused_total: int


class ConnectionPool:
    """Pool that reuses the last used connection first; implements ConnectionOwner."""

    def __init__(self, name: str, limits: PoolLimits, clock: Clock) -> None:
        self._name = name
        self._limits = limits
        self._clock = clock
        self._idle: dict[Connection, None] = {}
        self._busy: set[Connection] = set()
        self._closing: set[Connection] = set()
        self._num_connecting = 0
        self._num_connected_total = 0
        self._num_reused_total = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return (
            f"<ConnectionPool {self._name}: {len(self._busy)} busy, {len(self._idle)} idle, "
            f"{self._num_connecting} connecting, {len(self._closing)} closing, max {self._limits.max_connections}>"
        )

    @property
    def num_free(self) -> int:
        """Number of further connections that may be made."""
        return self._limits.max_connections - self.num_connections

    @property
    def num_connections(self) -> int:
        """Number of connections, idle, busy and being made."""
        return len(self._idle) + len(self._busy) + self._num_connecting

    @property
    def num_wanted(self) -> int:
        """Number of connections worth making ahead of need.

        While many are busy, a few should be idle, because requests may arrive faster than connections are made. Near
        the limit it is 0, since the remaining places belong to requests.
        """
        num_busy = len(self._busy)
        if num_busy < _CROWD or 2 * self.num_connections > self._limits.max_connections:
            return 0
        return max(min(1 + num_busy // _BUSY_PER_SPARE, _MAX_SPARES) - len(self._idle), 0)

    def snapshot(self) -> PoolSnapshot:
        """Return the current counts."""
        return PoolSnapshot(
            num_idle=len(self._idle),
            num_busy=len(self._busy),
            num_connecting=self._num_connecting,
            num_closing=len(self._closing),
            num_connected_total=self._num_connected_total,
            num_reused_total=self._num_reused_total,
        )

    def check_integrity(self) -> None:
        """Check the invariants; raises AssertionError."""
        assert not self._idle.keys() & self._busy, f"idle and busy at once: {self!r}"
        assert not self._closing & (self._idle.keys() | self._busy), f"closing and in use at once: {self!r}"
        assert all(connection.is_idle for connection in self._idle), f"an idle connection is not idle: {self!r}"
        assert not any(connection.is_idle for connection in self._busy), f"a busy connection is idle: {self!r}"
        assert all(connection.is_open for connection in self._busy), f"a busy connection is closed: {self!r}"
        assert self._num_connecting >= 0, f"negative count: {self!r}"
        assert self.num_connections <= self._limits.max_connections, f"over the limit: {self!r}"

    def take(self) -> Connection | None:
        """Return the connection used last, now the caller's, or None when one must be opened."""
        now = self._clock()
        while self._idle:
            connection, _ = self._idle.popitem()
            if self._is_fresh(connection, now):
                self._busy.add(connection)
                self._num_reused_total += 1
                return connection
            connection.close()
        return None

    def begin_connect(self) -> None:
        """Reserve a place for a connection about to be made; raises PoolFull."""
        if self.num_connections >= self._limits.max_connections:
            if not self._idle:
                raise PoolFull(f"{self._name}: all {self._limits.max_connections} connections are busy")
            next(iter(self._idle)).close()
        self._num_connecting += 1

    def end_connect(self, connection: Connection | None, *, idle: bool = False) -> None:
        """Fill the reserved place with a connection, or free it for None."""
        self._num_connecting -= 1
        if connection is None:
            return
        self._num_connected_total += 1
        if idle:
            self._put(connection)
        else:
            self._busy.add(connection)

    def released(self, connection: Connection) -> None:
        """Take back a connection whose response was read to its end."""
        self._busy.discard(connection)
        lifetime_s = self._limits.lifetime_s
        if lifetime_s is not None and connection.idle_since - connection.connected_at >= lifetime_s:
            connection.close()
        else:
            self._put(connection)

    def lost(self, connection: Connection) -> None:
        """Remove a connection that is out of use; its socket may still be closing."""
        self._idle.pop(connection, None)
        self._busy.discard(connection)
        self._closing.add(connection)

    def closed(self, connection: Connection) -> None:
        """Remove a connection whose socket is closed."""
        self._closing.discard(connection)
        if self._emptied is not None and not self._emptied.done() and self._is_empty():
            self._emptied.set_result(None)

    async def aclose(self, error: UpstreamError, timeout_s: float = 1.0) -> None:
        """Close everything; busy responses fail with `error`. Returns when the sockets are gone, or at the limit."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in tuple(self._idle):
            connection.close()
        for connection in tuple(self._busy):
            connection.abort(error)
        if not self._is_empty():
            self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._emptied,), timeout=timeout_s)

    def expire(self) -> None:
        """Close the connections that were idle for too long, and schedule the next check."""
        self._sweep = None
        now = self._clock()
        for connection in self._plan_expiry(now):
            connection.close()
        if self._idle:
            oldest = next(iter(self._idle))
            self._wake_in(max(0.001, oldest.idle_since + self._limits.idle_s - now))

    def _plan_expiry(self, now: float) -> list[Connection]:
        """Return the expired idle connections, a prefix of `_idle` by its order."""
        expired = []
        for connection in self._idle:
            if now - connection.idle_since < self._limits.idle_s:
                break
            expired.append(connection)
        return expired

    def _put(self, connection: Connection) -> None:
        self._idle[connection] = None
        if self._sweep is None:
            self._wake_in(self._limits.idle_s)

    def _wake_in(self, delay_s: float) -> None:
        self._sweep = asyncio.get_running_loop().call_later(delay_s, self.expire)

    def _is_fresh(self, connection: Connection, now: float) -> bool:
        lifetime_s = self._limits.lifetime_s
        is_young = lifetime_s is None or now - connection.connected_at < lifetime_s
        return is_young and now - connection.idle_since < self._limits.idle_s

    def _is_empty(self) -> bool:
        return not (self._idle or self._busy or self._closing)

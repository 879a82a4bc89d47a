from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.upstreams.http1.connection import Connection
from gateway.upstreams.http1.errors import ExchangePhase, PoolFull, ResponseClosed
from gateway.upstreams.http1.pulse import Pulse
from gateway.upstreams.http1.reader import WireLimits
from gateway.upstreams.pool import ConnectionPool, PoolLimits
from tests.gateway.upstreams.conftest import FakeClock


class FakeTransport(asyncio.Transport):
    """A transport without a socket that shows its protocol, at once, that it was closed."""

    def __init__(self, protocol: Connection) -> None:
        super().__init__()
        self._own_protocol = protocol
        self.is_closed = False
        protocol.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self._own_protocol.connection_lost, None)


def open_connection(pool: ConnectionPool, clock: FakeClock) -> Connection:
    connection = Connection(
        pool,
        name="engine",
        clock=clock,
        wire_limits=WireLimits(),
        max_buffer_bytes=1,
        loop=asyncio.get_running_loop(),
        pulse=Pulse(),
    )
    pool.begin_connect()
    FakeTransport(connection)
    pool.end_connect(connection, idle=True)
    return connection


async def test_expiry_closes_the_longest_idle_first_and_nothing_else(clock: FakeClock) -> None:
    pool = ConnectionPool("engine", PoolLimits(idle_s=3.0), clock)
    old = open_connection(pool, clock)
    clock.advance(2.0)
    young = open_connection(pool, clock)
    clock.advance(1.0)
    pool.expire()
    assert (old.is_open, young.is_open) == (False, True)
    assert pool.take() is young
    await pool.aclose(ResponseClosed("over", phase=ExchangePhase.BODY))


async def test_taking_skips_what_has_been_idle_for_too_long(clock: FakeClock) -> None:
    pool = ConnectionPool("engine", PoolLimits(idle_s=3.0), clock)
    stale = open_connection(pool, clock)
    clock.advance(3.0)
    assert pool.take() is None
    assert not stale.is_open
    assert pool.snapshot().num_closing == 1
    await asyncio.sleep(0)
    assert pool.snapshot().num_closing == 0
    await pool.aclose(ResponseClosed("over", phase=ExchangePhase.BODY))


async def test_expired_connections_go_without_a_call() -> None:
    loop = asyncio.get_running_loop()
    pool = ConnectionPool("engine", PoolLimits(idle_s=0.01), loop.time)
    connection = open_connection(pool, loop.time)  # type: ignore[arg-type]
    async with asyncio.timeout(5):
        while connection.is_open:
            await asyncio.sleep(0.005)
    pool.check_integrity()
    await pool.aclose(ResponseClosed("over", phase=ExchangePhase.BODY))


async def test_places_being_connected_count(clock: FakeClock) -> None:
    pool = ConnectionPool("engine", PoolLimits(max_connections=1), clock)
    pool.begin_connect()
    with pytest.raises(PoolFull):
        pool.begin_connect()
    pool.end_connect(None)
    pool.begin_connect()
    pool.end_connect(None)
    pool.check_integrity()


async def test_a_new_connection_displaces_an_idle_one_at_the_limit(clock: FakeClock) -> None:
    pool = ConnectionPool("engine", PoolLimits(max_connections=1), clock)
    idle = open_connection(pool, clock)
    pool.begin_connect()
    assert not idle.is_open
    pool.end_connect(None)
    await pool.aclose(ResponseClosed("over", phase=ExchangePhase.BODY))
    pool.check_integrity()


async def test_the_integrity_check_finds_a_connection_that_died_in_secret(clock: FakeClock) -> None:
    pool = ConnectionPool("engine", PoolLimits(), clock)
    connection = open_connection(pool, clock)
    pool.check_integrity()
    connection._is_lost = True
    with pytest.raises(AssertionError, match="1 idle"):
        pool.check_integrity()
    connection._is_lost = False
    await pool.aclose(ResponseClosed("over", phase=ExchangePhase.BODY))


@pytest.mark.parametrize("limits", [{"max_connections": 0}, {"idle_s": 0.0}, {"lifetime_s": -1.0}])
def test_limits_that_make_no_sense_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        PoolLimits(**limits)

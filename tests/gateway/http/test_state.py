"""What all connections of one listener share: their number, their number by address, and who gives way."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from gateway.errors import GatewayError
from gateway.http.limits import ConnectionLimits, EdgeLimits
from gateway.http.state import EdgeHooks, EdgeState, ShutdownEvents


class Connection:
    """A connection as the listener's state sees it."""

    def __init__(self, idle_since: float = 0.0) -> None:
        self.idle_since = idle_since
        self.has_given_up = False
        self.checks: list[float] = []
        self.next_look: float | None = None

    def give_up(self) -> None:
        self.has_given_up = True

    def on_deadline(self, now: float) -> float | None:
        self.checks.append(now)
        return self.next_look


class World:
    def __init__(self, **limits: Any) -> None:
        self.now = 100.0
        self.refused: list[tuple[str, GatewayError]] = []
        self.state = EdgeState(
            name="public",
            limits=EdgeLimits(connections=ConnectionLimits(**limits)),
            loop=asyncio.get_running_loop(),
            clock=lambda: self.now,
            resolution_s=0.1,
            shutdown=ShutdownEvents(leaving=asyncio.Event(), draining=asyncio.Event()),
            hooks=EdgeHooks(
                new_request_id=lambda: "req_7", on_refusal=lambda name, error: self.refused.append((name, error))
            ),
        )

    def admit(self, connection: Connection, ip: str | None = None) -> bool:
        return self.state.admit(cast(Any, connection), ip)

    def release(self, connection: Connection, ip: str | None = None) -> None:
        self.state.release(cast(Any, connection), ip)


async def test_one_address_holds_no_more_than_its_share_and_others_go_on() -> None:
    world = World(max_per_ip=2)
    first = Connection()
    assert [world.admit(one, "10.0.0.1") for one in (first, Connection(), Connection())] == [True, True, False]
    assert world.admit(Connection(), "10.0.0.2")
    assert world.admit(Connection()), "a Unix socket has no address"
    world.release(first, "10.0.0.1")
    assert world.admit(Connection(), "10.0.0.1")


async def test_a_full_listener_gives_up_who_was_idle_longest_but_nobody_fresh() -> None:
    world = World(max_total=1)
    old, fresh = Connection(idle_since=50.0), Connection(idle_since=99.5)
    assert world.admit(old)
    assert not world.admit(Connection()), "it is busy"
    world.state.idle[cast(Any, old)] = None
    assert world.admit(Connection())
    assert old.has_given_up
    world.state.idle.clear()
    world.state.idle[cast(Any, fresh)] = None
    assert not world.admit(Connection())


async def test_a_refusal_is_counted_and_has_an_id() -> None:
    world = World()
    raw = world.state.refuse_connection()
    assert raw.startswith(b"HTTP/1.1 503 ")
    assert b"x-request-id: req_7\r\n" in raw
    assert [(name, error.status) for name, error in world.refused] == [("public", 503)]


async def test_connections_are_looked_at_when_due_and_again_when_they_report() -> None:
    world = World()
    again, once = Connection(), Connection()
    again.next_look = 105.0
    for connection in (again, once):
        world.admit(connection)
        world.state.wheel.look_at(cast(Any, connection), 101.0)
    world.state.sweep(100.5)
    assert again.checks == []
    world.state.sweep(101.2)
    world.state.sweep(105.2)
    assert (again.checks, once.checks) == ([101.2, 105.2], [101.2])
    world.release(again)
    world.state.sweep(120.0)
    assert len(again.checks) == 2

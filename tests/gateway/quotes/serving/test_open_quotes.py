"""Open quotes: bounded for each tenant and deployment, and over by the injected clock."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.quotes.serving.open_quotes import OpenQuote, OpenQuotes

HOLD_S = 5.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Reserved:
    def __init__(self, live: Any) -> None:
        self.live = live
        self.is_released = False

    def release(self) -> None:
        self.is_released = True


class World:
    def __init__(self, num_processes: int = 1) -> None:
        self.clock, self.num_lapsed, self._number = Clock(), 0, 0
        self.quotes = OpenQuotes(self.clock, num_processes=num_processes, on_lapse=self._note_lapse)

    def _note_lapse(self) -> None:
        self.num_lapsed += 1

    def add(self, live: Any, tenant: str = "shop") -> tuple[str, Reserved]:
        self._number += 1
        reserved: Any = Reserved(live)
        unused: Any = None
        quote = OpenQuote(
            id=f"quote_{self._number}",
            tenant=tenant,
            policy="1",
            route="main",
            admission_request=unused,
            request=None,
            avoid=frozenset(),
            stand_in=None,
            routing_request=unused,
            degraded=(),
            trimmed=(),
            reserved=reserved,
            expires_at=self.clock.now + HOLD_S,
        )
        self.quotes.add(quote)
        return quote.id, reserved


class Live:
    def __init__(self, limit: int) -> None:
        self.limiter = SimpleNamespace(limit=limit)


def live(limit: int) -> Any:
    return Live(limit)


async def test_a_quote_is_taken_once() -> None:
    world = World()
    name, reserved = world.add(live(8))
    taken = world.quotes.take(name)
    assert taken is not None
    assert taken.reserved is reserved  # type: ignore[comparison-overlap]
    assert world.quotes.take(name) is None
    assert not reserved.is_released
    assert len(world.quotes) == 0


async def test_a_quote_ends_by_the_clock() -> None:
    world = World()
    name, reserved = world.add(live(8))
    world.clock.now += HOLD_S - 0.001
    world.quotes.expire()
    assert not reserved.is_released
    world.clock.now += 0.001
    assert world.quotes.take(name) is None
    assert reserved.is_released
    assert world.num_lapsed == 1


async def test_a_timer_ends_a_quote_that_nobody_mentions_again() -> None:
    world = World()
    _, reserved = world.add(live(8))
    loop = asyncio.get_running_loop()
    [timer] = world.quotes._timers.values()
    assert 0.0 < timer.when() - loop.time() <= HOLD_S
    world.clock.now += HOLD_S - 0.0005
    timer._run()
    assert not reserved.is_released
    [again] = world.quotes._timers.values()
    assert again is not timer, "the loop's timer came before the clock's instant"
    world.clock.now += 0.0005
    again._run()
    assert reserved.is_released
    assert again.cancelled(), "a timer that ran, or is not needed any more, holds nothing"


async def test_a_tenant_holds_few_and_leaves_the_others_alone() -> None:
    world, one = World(), live(100)
    for _ in range(3):
        assert world.quotes.may_hold("greedy", one, 3)
        world.add(one, "greedy")
    assert not world.quotes.may_hold("greedy", one, 3)
    assert world.quotes.may_hold("other", one, 3)
    world.clock.now += HOLD_S
    assert world.quotes.may_hold("greedy", one, 3)


@pytest.mark.parametrize(
    ("limit", "num_processes", "most"),
    [(1, 1, 0), (2, 1, 1), (8, 1, 2), (100, 1, 25), (8, 4, 1), (7, 4, 0), (64, 4, 4)],
)
async def test_all_tenants_together_leave_most_permits_free(limit: int, num_processes: int, most: int) -> None:
    world, one = World(num_processes), live(limit)
    for number in range(most):
        assert world.quotes.may_hold(f"tenant{number}", one, 100)
        world.add(one, f"tenant{number}")
    assert not world.quotes.may_hold("another", one, 100)
    assert world.quotes.may_hold("another", live(100), 100)


async def test_no_permit_is_held_where_the_policy_allows_none() -> None:
    assert not World().quotes.may_hold("shop", live(100), 0)


async def test_a_quote_is_used_once_until_it_expires() -> None:
    world = World()
    assert world.quotes.use_once("quote_1", world.clock.now + HOLD_S)
    assert not world.quotes.use_once("quote_1", world.clock.now + HOLD_S)
    world.clock.now += HOLD_S
    assert world.quotes.use_once("quote_2", world.clock.now + HOLD_S)
    assert len(world.quotes._used) == 1


async def test_the_end_of_the_process_returns_everything() -> None:
    world = World()
    held = [world.add(live(8))[1] for _ in range(3)]
    world.quotes.close()
    assert all(reserved.is_released for reserved in held)
    assert len(world.quotes) == 0

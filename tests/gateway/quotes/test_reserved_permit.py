"""A reserved permit: held, taken once, or returned, on every path."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.limits.lane import LiveLane
from gateway.limits.limit import StaticLimit
from gateway.limits.limiter import Limiter
from gateway.limits.permit import AdmissionRequest
from gateway.quotes.reserved_permit import ReservedPermit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Held:
    """A deployment with one permit, as a reservation sees it."""

    def __init__(self, limit: int = 1, max_queue: int = 4) -> None:
        self.clock = Clock()
        self.limiter = Limiter(StaticLimit(limit), clock=self.clock)
        self.lane = LiveLane("interactive", max_queue=max_queue)
        self.live: Any = SimpleNamespace(limiter=self.limiter)

    def reserve(self) -> ReservedPermit:
        decision: Any = None
        return ReservedPermit(self.live, decision, AdmissionRequest(self.lane))

    def check_nothing_held(self) -> None:
        assert (self.limiter.in_flight, self.lane.num_waiting) == (0, 0)
        self.limiter.check_integrity()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_free_permit_is_held_and_taken_once() -> None:
    held = Held()
    reserved = held.reserve()
    assert held.limiter.in_flight == 1
    held.clock.now += 3.0
    permit = await reserved.take(held.clock)
    assert permit is not None
    assert permit.granted_at == held.clock.now, "its work begins when it is taken"
    assert await reserved.take(held.clock) is None
    reserved.release()
    assert held.limiter.in_flight == 1, "what was taken belongs to the request"
    permit.release()
    held.check_nothing_held()


async def test_an_unused_permit_returns_and_teaches_nothing() -> None:
    held = Held()
    reserved = held.reserve()
    held.clock.now += 60.0
    reserved.release()
    reserved.release()
    held.check_nothing_held()
    assert not held.limiter._ledger.shares[held.lane].holds.is_known


async def test_a_place_in_the_queue_becomes_a_permit() -> None:
    held = Held()
    first, second = held.reserve(), held.reserve()
    await settle()
    assert held.lane.num_waiting == 1
    taking = asyncio.create_task(second.take(held.clock))
    await settle()
    assert not taking.done()
    first.release()
    permit = await taking
    assert permit is not None
    permit.release()
    held.check_nothing_held()


@pytest.mark.parametrize("is_granted", [False, True])
async def test_a_place_in_the_queue_is_given_up(is_granted: bool) -> None:
    held = Held()
    first, second = held.reserve(), held.reserve()
    await settle()
    if is_granted:
        first.release()
        await settle()
    second.release()
    first.release()
    await settle()
    held.check_nothing_held()


async def test_a_full_queue_reserves_nothing() -> None:
    held = Held(max_queue=1)
    first, second, third = held.reserve(), held.reserve(), held.reserve()
    await settle()
    assert await third.take(held.clock) is None
    for reserved in (first, second, third):
        reserved.release()
    await settle()
    held.check_nothing_held()


async def test_a_request_that_is_cancelled_while_it_waits_leaves_the_queue() -> None:
    held = Held()
    first, second = held.reserve(), held.reserve()
    taking = asyncio.create_task(second.take(held.clock))
    await settle()
    taking.cancel()
    await settle()
    first.release()
    await settle()
    held.check_nothing_held()


async def test_a_request_that_is_cancelled_as_its_permit_comes_returns_it() -> None:
    held = Held()
    first, second = held.reserve(), held.reserve()
    await settle()
    taking = asyncio.create_task(second.take(held.clock))
    await settle()
    first.release()
    asyncio.get_running_loop().call_soon(taking.cancel)  # the client leaves in the iteration of the grant
    await settle()
    assert taking.cancelled()
    second.release()
    held.check_nothing_held()


async def test_a_place_in_the_queue_is_left_when_the_request_could_no_longer_start() -> None:
    held = Held()
    first, second = held.reserve(), held.reserve()
    await settle()
    assert await second.take(held.clock, start_by=held.clock.now) is None
    await settle()
    assert held.lane.num_waiting == 0
    first.release()
    held.check_nothing_held()

"""StoreLease: one holder at a time, over each kind of store."""

from __future__ import annotations

import asyncio

from gateway.recalls.store_lease import LEASE_S, TRY_S, StoreLease
from gateway.store.base import Store, StoreUnavailable
from tests.gateway.store.wrapped_store import SwitchedStore


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_lease_is_held_by_one_until_it_gives_it_back(store: Store) -> None:
    clock = Clock()
    one, other = (StoreLease(store, "test", holder=name, clock=clock) for name in ("one", "other"))
    assert await one.hold()
    assert not await other.hold()
    clock.now += LEASE_S / 2.0
    assert await one.hold(), "renewed"
    assert not await other.hold()
    await one.release()
    clock.now += TRY_S
    assert await other.hold()
    assert not await one.hold()


async def test_a_holder_that_stalled_learns_that_another_one_holds_it(store: Store) -> None:
    clock = Clock()
    one, other = (StoreLease(store, "test", holder=name, clock=clock) for name in ("one", "other"))
    assert await one.hold()
    assert await store.delete("test", "lease")  # as after its time
    assert await other.hold()
    assert await one.hold(), "it does not know yet"
    clock.now += TRY_S
    assert not await one.hold()


async def test_without_the_store_a_lease_lasts_for_half_its_time(store: Store) -> None:
    clock, switched = Clock(), SwitchedStore(store)
    lease = StoreLease(switched, "test", holder="one", clock=clock)
    assert await lease.hold()
    switched.is_away = True
    clock.now += LEASE_S * 0.4
    assert await lease.hold()
    clock.now += LEASE_S * 0.2
    for _ in range(2):
        try:
            assert not await lease.hold()
        except StoreUnavailable:
            continue
        raise AssertionError("it cannot know")


async def test_renewals_at_the_same_time_do_not_take_the_lease_from_each_other(store: Store) -> None:
    clock = Clock()
    lease = StoreLease(store, "test", holder="one", clock=clock)
    assert await lease.hold()
    clock.now += TRY_S
    assert await asyncio.gather(*(lease.hold() for _ in range(5))) == [True] * 5

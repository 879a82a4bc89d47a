"""Construct the store that the settings name."""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.store.address import StoreAddress
from gateway.store.base import Store
from gateway.store.embedded import EmbeddedStore
from gateway.store.guarded import CONNECT_S, GuardedStore, StoreObserver
from gateway.store.schema import StampedStore
from gateway.timeline import Clock


def open_store(
    address: StoreAddress,
    *,
    timeout_s: float,
    clock: Clock = time.monotonic,
    wall: Callable[[], float] = time.time,
    on_damage: Callable[[str], None] = lambda _: None,
    on_time: Callable[[float], None] = lambda _: None,
) -> Store:
    """Return the store, not yet connected: its first operation does that.

    Args:
        address: Where it is.
        timeout_s: Bound of one operation.
        clock: Monotonic seconds.
        wall: Seconds since the epoch.
        on_damage: Receives the outcome for a broken file.
        on_time: Receives what the clock of a Redis shows, a moment after it showed it.
    """
    if address.kind == "embedded":
        assert address.path is not None
        return EmbeddedStore(address.path, wall=wall, on_damage=on_damage)
    from gateway.store.redis.client import connect  # only who uses Redis pays for its import
    from gateway.store.redis.store import RedisStore

    return RedisStore(connect(address, timeout_s=timeout_s), clock=clock, wall=wall, on_time=on_time)


def open_examined(address: StoreAddress, observer: StoreObserver) -> tuple[Store, GuardedStore]:
    """Return a store to be examined, and its guarded form, which the caller closes."""
    store = open_store(address, timeout_s=CONNECT_S)
    return store, GuardedStore(StampedStore(store), timeout_s=CONNECT_S, clock=time.monotonic, observer=observer)

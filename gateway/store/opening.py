"""Opening of the store that the `store` setting names."""

from __future__ import annotations

from collections.abc import Callable

from gateway.store.address import StoreAddress
from gateway.store.base import Store
from gateway.store.embedded import EmbeddedStore
from gateway.timeline import Clock


def open_store(
    address: StoreAddress,
    *,
    timeout_s: float,
    clock: Clock,
    wall: Callable[[], float],
    on_damage: Callable[[str], None] = lambda _: None,
) -> Store:
    """Return the store, which its first operation connects. `on_damage` gets what became of a damaged file."""
    if address.kind == "embedded":
        assert address.path is not None
        return EmbeddedStore(address.path, wall=wall, on_damage=on_damage)
    from gateway.store.redis_store import open_redis  # imported where Redis is used

    return open_redis(address, timeout_s=timeout_s, clock=clock, wall=wall)

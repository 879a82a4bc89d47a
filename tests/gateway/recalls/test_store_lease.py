"""StoreLease: one holder at a time, over each kind of store."""

from __future__ import annotations

from gateway.recalls.store_lease import LEASE_S, TRY_S, StoreLease
from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.forwarding import ForwardingStore


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


class Lost(ForwardingStore):
    """A store that is lost once `is_lost` is set."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.is_lost = False

    def nodes(self) -> tuple[str, ...]:
        return self.store.nodes()

    def node_of(self, space: str) -> str:
        return self.store.node_of(space)

    async def ping(self, node: str = "") -> None:
        await self.store.ping(node)

    async def aclose(self) -> None:
        await self.store.aclose()

    async def _forward(self, operation: str, *arguments: object, **options: object) -> object:
        if self.is_lost:
            raise StoreUnavailable(StoreLoss.DOWN, "lost")
        return await getattr(self.store, operation)(*arguments, **options)


async def test_without_the_store_a_lease_lasts_for_half_its_time(store: Store) -> None:
    clock, lost = Clock(), Lost(store)
    lease = StoreLease(lost, "test", holder="one", clock=clock)
    assert await lease.hold()
    lost.is_lost = True
    clock.now += LEASE_S * 0.4
    assert await lease.hold()
    clock.now += LEASE_S * 0.2
    for _ in range(2):
        try:
            assert not await lease.hold()
        except StoreUnavailable:
            continue
        raise AssertionError("it cannot know")

"""What gateways keep in a store with a bound: shares of tenants, no write that the server has to refuse."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.app.connections.store_opening import open_store
from gateway.cache.exact.entry import encode_entry
from gateway.cache.sharing.notices import SPACE, entry_key
from gateway.cache.sharing.sharing import CacheSharing
from gateway.cache.sharing.store_shares import StoreShares, stored_bytes
from gateway.cache.sharing.write_queue import MAX_ENTRY_BYTES
from gateway.store.address import parse_store
from gateway.store.base import Room, StoreLoss
from gateway.store.guarded import GuardedStore
from tests.gateway.cache.sharing.test_sharing import NOW, Process, entry
from tests.gateway.store.redis_server import RedisServer

HOT, FLOOD = range(1, 41), range(1000, 1060)


class Heard:
    """What a guarded store shows its observer."""

    def __init__(self) -> None:
        self.failures: Counter[StoreLoss] = Counter()
        self.ups: list[bool] = []

    def took(self, operation: str, seconds: float) -> None:
        pass

    def failed(self, operation: str, reason: StoreLoss) -> None:
        self.failures[reason] += 1

    def is_up(self, is_up: bool, reason: str) -> None:
        self.ups.append(is_up)


# The rule


class Server:
    """One with so much room."""

    def __init__(self, free: int | None) -> None:
        self.free = free

    async def __call__(self) -> Room | None:
        return None if self.free is None else Room(self.free, 10**9)


def shares(max_bytes: int, free: int | None = None, hits: dict[bytes, int] | None = None) -> StoreShares:
    known = hits or {}
    return StoreShares(max_bytes, room=Server(free), num_hits=lambda exact: known.get(exact, 0), wall=lambda: NOW)


async def put(to: StoreShares, number: int, size: int = 1000, tenant: str = "a", ttl_s: float = 60) -> set[int] | None:
    """Numbers of the entries that go for it; None when it is not let in."""
    is_let_in, gone = await to.let_in(entry(number, tenant=tenant), size, NOW + ttl_s)
    if is_let_in:
        to.written(size)
    return {int.from_bytes(exact, "little") for exact in gone} if is_let_in else None


async def test_all_that_fits_is_let_in() -> None:
    to = shares(10 * stored_bytes(1000))
    assert [await put(to, number) for number in range(10)] == [set()] * 10
    assert to.num_bytes == 10 * stored_bytes(1000)


async def test_one_more_makes_another_go() -> None:
    to = shares(10 * stored_bytes(1000))
    for number in range(10):
        await put(to, number)
    gone = await put(to, 10)
    assert gone is None or len(gone) == 1
    assert to.num_bytes <= 10 * stored_bytes(1000)


async def test_what_was_hit_here_stays() -> None:
    hits = {entry(number).exact: 3 for number in range(5)}
    to = shares(10 * stored_bytes(1000), hits=hits)
    for number in range(40):
        assert not (await put(to, number) or set()) & set(range(5))


async def test_a_server_without_room_makes_entries_go_or_refuses() -> None:
    to = shares(10**9, free=0)
    assert await put(to, 1) is None
    assert to.num_bytes == 0


async def test_only_half_of_the_servers_room_is_used_between_two_checks() -> None:
    to = shares(10**9, free=10 * stored_bytes(1000))
    assert [await put(to, number) for number in range(4)] == [set()] * 4


async def test_what_ended_in_the_store_is_counted_no_more() -> None:
    now = [NOW]
    to = StoreShares(10**6, room=Server(None), num_hits=lambda exact: 0, wall=lambda: now[0])
    await put(to, 1, ttl_s=10)
    now[0] += 11
    await put(to, 2)
    assert to.num_bytes == stored_bytes(1000)


@pytest.mark.parametrize("size", [5_000, 100_000])
async def test_a_flood_of_one_tenant_removes_nothing_of_another_below_its_share(size: int) -> None:
    to = shares(2_000_000)
    for number in range(100):
        await put(to, number, tenant="calm")
    before = to.used_by("calm")
    for number in range(1000, 1000 + 20_000_000 // size):
        assert not (await put(to, number, size, tenant="flood") or set()) & set(range(100))
    assert to.used_by("calm") == before


# The line before the store


# A real Redis


@pytest.fixture(params=[2, 4])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    found = RedisServer(tmp_path / "redis", f"maxmemory {request.param}mb", "maxmemory-policy noeviction").start()
    yield found
    found.kill()


def gateway(server: RedisServer, heard: Heard) -> tuple[Process, GuardedStore]:
    raw = open_store(parse_store(server.url), timeout_s=1.0, clock=time.monotonic, wall=time.time)
    store = GuardedStore(raw, timeout_s=1.0, clock=time.monotonic, observer=heard)
    process = Process(store)
    process.sharing = CacheSharing(
        process.cache,
        store,
        wall=process.wall,
        new_name=lambda: "n",
        count=lambda event: process.counts.update([event]),
        max_bytes=64_000_000,
    )
    process.cache.share_with(process.sharing)
    return process, store


async def held(store: GuardedStore, numbers: range) -> int:
    found = [await store.get(SPACE, entry_key(entry(number).exact)) for number in numbers]
    return sum(each is not None for each in found)


@pytest.mark.parametrize("size", [20_000, 200_000])
async def test_a_flood_neither_fills_a_redis_nor_costs_others_their_entries(server: RedisServer, size: int) -> None:
    heard = Heard()
    one, store = gateway(server, heard)
    other, store2 = gateway(server, heard)
    await store.ping()
    for process in (one, other):
        await process.sharing.catch_up()
    limit = int(server.admin.config_get("maxmemory")["maxmemory"])
    for number in HOT:
        one.keep(entry(number, tenant="calm", text="y" * 300))
        one.has(number)
    await one.announce()
    for round_ in range(3):
        for number in FLOOD:
            for index, process in enumerate((one, other)):
                flood = entry(number + 1000 * (2 * round_ + index), tenant="flood", text="z" * size)
                assert len(encode_entry(flood)) < MAX_ENTRY_BYTES
                process.keep(flood)
                await process.announce()
        for process in (one, other):
            await process.sharing.catch_up()
    values = sum(server.admin.hstrlen(key, "v") for key in server.admin.keys("*:e:e.*"))
    assert values < 0.8 * limit - server.admin.info("memory")["used_memory_startup"]
    assert await held(store, HOT) == len(HOT)
    assert all(one.has(number) for number in HOT)
    assert heard.failures[StoreLoss.FULL] == 0
    assert heard.ups == [True, True]
    for each in (store, store2):
        await each.aclose()


async def test_what_others_fill_makes_the_cache_yield_and_nobody_is_reported_that_the_store_is_down(
    server: RedisServer,
) -> None:
    heard = Heard()
    one, store = gateway(server, heard)
    await store.ping()
    await one.sharing.catch_up()
    for number in HOT:
        one.keep(entry(number, tenant="calm", text="y" * 300))
    await one.announce()
    server.admin.config_set("maxmemory", server.admin.info("memory")["used_memory"] + 100_000)
    one.sharing._queue._shares._checked_at = 0.0  # type: ignore[union-attr]
    one.keep(entry(5000, tenant="calm"))
    await one.announce()
    assert heard.failures[StoreLoss.FULL] == 0
    assert heard.ups == [True]
    await store.aclose()


async def test_a_full_redis_is_read_and_not_called_down(server: RedisServer) -> None:
    heard = Heard()
    one, store = gateway(server, heard)
    await store.put("s", "k", b"v")
    await store.put("s", "gone", b"v")
    server.admin.config_set("maxmemory", 1)
    for _ in range(5):
        with pytest.raises(Exception, match="full"):
            await store.put("s", "other", b"v")
        found = await store.get("s", "k")
        assert found is not None
    assert await store.delete("s", "gone"), "what makes room is done"
    with pytest.raises(Exception, match="full"):
        await store.ping()
    assert heard.ups == [True]
    assert heard.failures[StoreLoss.FULL] == 6
    one.keep(entry(1))
    await one.announce()
    assert one.counts["dropped"] == 1
    server.admin.config_set("maxmemory", 0)
    assert await store.put("s", "other", b"v") is not None
    await store.aclose()

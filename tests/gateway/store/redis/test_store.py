"""Redis killed, frozen, full, read-only, evicting, locked: each is one word to whoever uses the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.cluster import ClusterNode

from gateway.app.connections.store_opening import open_store
from gateway.store.address import parse_store
from gateway.store.base import Store, StoreEntry, StoreLoss, StoreUnavailable
from gateway.store.guarded import GuardedStore
from gateway.store.redis.cluster import ClusterClient
from gateway.store.redis.store import RedisStore
from tests.gateway.store.conftest import open_at
from tests.gateway.store.redis_server import RedisServer, SentinelSet, until
from tests.gateway.store.test_guarded import Heard


async def lost(store: Store) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as caught:
        await store.put("s", "k", b"v")
    return caught.value


async def test_a_killed_redis_is_down_and_surely_did_nothing(server: RedisServer, raw: Store) -> None:
    server.kill()
    await lost(raw)  # the connection that it had breaks
    error = await lost(raw)
    assert (error.reason, error.was_sent) == (StoreLoss.DOWN, False)
    server.start()
    assert await raw.put("s", "k", b"v") == 1


async def test_a_full_redis_is_full_and_still_read(server: RedisServer, raw: Store) -> None:
    await raw.put("s", "k", b"before")
    server.admin.config_set("maxmemory", "1mb")
    error = await lost(raw)
    assert error.reason is StoreLoss.FULL
    assert await raw.get("s", "k") == StoreEntry(b"before", 1)
    with pytest.raises(StoreUnavailable, match="full"):
        await raw.ping()
    server.admin.config_set("maxmemory", "0")
    await raw.ping()


async def test_a_redis_that_evicts_is_not_trusted_with_counts(server: RedisServer, raw: Store) -> None:
    server.admin.config_set("maxmemory-policy", "allkeys-lru")
    server.admin.config_set("maxmemory", "3mb")
    await raw.ping()
    for index in range(40):
        await raw.put("filler", f"k{index}", bytes(100_000))
    with pytest.raises(StoreUnavailable, match="evicting"):
        await raw.ping()
    assert (await lost(raw)).reason is StoreLoss.EVICTING


async def test_a_primary_that_became_a_replica_is_read_only(tmp_path: Path, server: RedisServer, raw: Store) -> None:
    other = RedisServer(tmp_path / "other").start()
    server.admin.replicaof("127.0.0.1", other.port)
    until(lambda: server.admin.info("replication")["master_link_status"] == "up", "replication")
    assert (await lost(raw)).reason is StoreLoss.READ_ONLY
    with pytest.raises(StoreUnavailable, match="read_only"):
        await raw.ping()
    other.kill()


async def test_a_user_without_rights_is_refused(server: RedisServer) -> None:
    server.admin.acl_setuser("app", enabled=True, passwords=["+pw"], keys=["*"], commands=["+get", "+set", "+info"])
    for credentials in ("app:pw", "app:wrong"):
        store = open_at(server.url.replace("//", f"//{credentials}@"))
        error = await lost(store)
        assert error.reason is StoreLoss.REFUSED
        assert "pw" not in str(error).replace("WRONGPASS", "")
        await store.aclose()


class TestBehindTheGuard:
    @pytest.fixture
    async def store(self, server: RedisServer) -> AsyncIterator[tuple[GuardedStore, Heard]]:
        heard = Heard()
        raw = open_store(parse_store(server.url), timeout_s=0.05, clock=time.monotonic, wall=time.time)
        found = GuardedStore(raw, timeout_s=0.05, clock=time.monotonic, observer=heard)
        await found.ping()
        watch = asyncio.create_task(found.watch())
        yield found, heard
        watch.cancel()
        await found.aclose()

    async def test_a_frozen_redis_costs_the_timeout_twice_and_then_nothing(
        self, server: RedisServer, store: tuple[GuardedStore, Heard]
    ) -> None:
        guarded, heard = store
        server.freeze()
        took = [await self._timed(guarded) for _ in range(200)]
        assert sorted(took)[-3] < 0.005
        assert max(took) < 0.5  # the timeout, and whatever else this machine does
        assert heard.states == [True, False]
        server.thaw()
        await self._until_up(guarded)
        assert await guarded.put("s", "k", b"v") is not None

    async def test_a_killed_redis_costs_next_to_nothing(
        self, server: RedisServer, store: tuple[GuardedStore, Heard]
    ) -> None:
        guarded, _ = store
        server.kill()
        took = [await self._timed(guarded) for _ in range(200)]
        assert sorted(took)[-3] < 0.005
        server.start()
        await self._until_up(guarded)
        assert await guarded.put("s", "k", b"v") == 1

    async def _timed(self, store: GuardedStore) -> float:
        started_at = time.perf_counter()
        with pytest.raises(StoreUnavailable):
            await store.put("s", "k", b"v")
        return time.perf_counter() - started_at

    async def _until_up(self, store: GuardedStore) -> None:
        async with asyncio.timeout(15):
            while not store.is_up:
                await asyncio.sleep(0.01)


async def test_a_failover_by_sentinels_is_followed(tmp_path: Path) -> None:
    servers = SentinelSet(tmp_path)
    try:
        servers.start()
        raw = open_store(parse_store(servers.url), timeout_s=0.1, clock=time.monotonic, wall=time.time)
        store = GuardedStore(raw, timeout_s=0.1, clock=time.monotonic, observer=Heard())
        await store.ping()
        watch = asyncio.create_task(store.watch())
        assert await store.put("s", "k", b"before") == 1
        until(lambda: servers.replica.admin.exists("penstock:{s}:e:k"), "replication")
        servers.primary.kill()
        version = None
        async with asyncio.timeout(30):
            while version is None:
                try:
                    version = await store.put("s", "k", b"after")
                except StoreUnavailable:
                    await asyncio.sleep(0.02)
        assert version == 2
        assert await store.get("s", "k") == StoreEntry(b"after", 2)
        watch.cancel()
        await store.aclose()
    finally:
        servers.kill()


class _MovingCluster(ClusterClient):
    """A Cluster of two nodes; the first one has every slot, or none after they moved."""

    def __init__(self) -> None:
        super().__init__(startup_nodes=[ClusterNode("127.0.0.1", 7001)])
        self.has_moved = False
        self.num_looked = 0
        self.written: list[str] = []

    def primaries(self) -> tuple[str, ...]:
        return ("a", "b")

    def primary_of(self, key: str) -> str:
        self.num_looked += 1
        assert self.num_looked < 1_000_000, "the search for a key of the node does not end"
        return "b" if self.has_moved else "a"

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        self.written.append(args[1])


async def test_the_search_for_a_key_of_a_node_ends_and_its_result_is_cached() -> None:
    cluster = _MovingCluster()
    store = RedisStore(cluster, clock=time.monotonic, wall=time.time)
    for _ in range(3):
        await store._write_ping("a")
    assert cluster.written == ["penstock:{0}:ping"] * 3
    cluster.has_moved = True
    await store._write_ping("a")
    assert len(cluster.written) == 3
    await store._write_ping("b")
    assert len(cluster.written) == 4

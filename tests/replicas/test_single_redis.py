"""One Redis that is killed, frozen, slow, full or read-only under the load of three gateways (rows 30, 31, 33, 47)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.gateway.store.redis_server import RedisServer
from tests.replicas.fleet import Fleet, Replica, fleet_over, has_lost_store, started
from tests.support.fault_proxy import FaultProxy

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Single:
    """A fleet whose Redis is behind a proxy."""

    def __init__(self, fleet: Fleet, redis: RedisServer, proxy: FaultProxy) -> None:
        self.fleet = fleet
        self.redis = redis
        self.proxy = proxy

    async def until_lost(self) -> None:
        """Wait until every replica goes on without its store."""
        await self.fleet.until_each(has_lost_store, "the store is lost")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def single(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Single]:
    folder = tmp_path_factory.mktemp("single")
    async with (
        started(RedisServer(folder / "redis", "appendonly yes", "appendfsync always")) as redis,
        FaultProxy(("127.0.0.1", redis.port)) as proxy,
        fleet_over(proxy.url.replace("http", "redis"), folder) as fleet,
    ):
        yield Single(fleet, redis, proxy)


async def test_row_30_a_redis_that_is_killed_and_restarted(single: Single) -> None:
    async with single.fleet.load("metered0") as load:
        single.redis.kill()
        await single.until_lost()
        await load.until_more()
        await asyncio.to_thread(single.redis.start)
        await single.fleet.until_store_is_up()
        await load.until_more()
    await single.fleet.check(load)


async def test_row_31_a_redis_that_is_frozen(single: Single) -> None:
    async with single.fleet.load("metered1") as load:
        single.redis.freeze()
        await single.until_lost()
        await load.until_more()
        single.redis.thaw()
        await single.fleet.until_store_is_up()
        await load.until_more()
    await single.fleet.check(load)


async def test_row_31_a_redis_that_answers_later_than_its_timeout(single: Single) -> None:
    async with single.fleet.load("metered2") as load:
        single.proxy.toxics.latency_s = 0.3
        await single.until_lost()
        await load.until_more()
        single.proxy.toxics.latency_s = 0.0
        await single.fleet.until_store_is_up()
        await load.until_more()
    await single.fleet.check(load)


async def test_row_33_a_redis_that_is_full(single: Single) -> None:
    async with single.fleet.load("metered3") as load:
        single.redis.admin.config_set("maxmemory", "1mb")
        await single.fleet.until_each(_was_full, "a refused write")
        await load.until_more()
        assert all([await replica.metric("penstock_store_up") == 1.0 for replica in single.fleet.replicas])
        single.redis.admin.config_set("maxmemory", "0")
        await load.until_more()
    await single.fleet.check(load)


async def test_row_33_a_redis_that_became_a_replica(single: Single) -> None:
    async with single.fleet.load("metered4") as load:
        single.redis.admin.replicaof("127.0.0.1", 1)  # a primary that nobody reaches: data stay, writes are refused
        await single.until_lost()
        await load.until_more()
        single.redis.admin.replicaof("no", "one")
        await single.fleet.until_store_is_up()
        await load.until_more()
    await single.fleet.check(load)


async def test_row_47_a_redis_that_is_emptied(single: Single) -> None:
    """Keys and the policy come back from the replicas; counts of the minute begin anew, as the page on Redis says."""
    async with single.fleet.load("free") as load:
        single.redis.admin.flushall()
        await load.until_more()
    assert load.failures == []
    assert load.misses == []
    await single.fleet.check_policy()
    await single.fleet.check_keys()
    await single.fleet.check_cache()


async def _was_full(replica: Replica) -> bool:
    return await replica.metric("penstock_store_failures_total", reason="full") > 0

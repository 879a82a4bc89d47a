"""A network between gateways and Redis that is slow, or drops every packet (rows 31 and 47, partition)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.store.redis_server import RedisServer
from tests.replicas.fleet import fleet_over, has_lost_store, has_store, started
from tests.support.fault_proxy import FaultProxy
from tests.support.network_namespace import NetworkNamespace


@pytest.mark.parametrize("latency_s", [0.02, 0.3])
async def test_row_47_a_redis_far_away_with_a_timeout_that_fits(tmp_path: Path, latency_s: float) -> None:
    """Nothing is lost: every request is served by limits that are exact."""
    async with (
        started(RedisServer(tmp_path / "redis")) as redis,
        FaultProxy(("127.0.0.1", redis.port)) as proxy,
        fleet_over(proxy.url.replace("http", "redis"), tmp_path, store__timeout_s=1.0) as fleet,
    ):
        async with fleet.load("metered0") as load:
            proxy.toxics.latency_s = latency_s
            await load.until_more("metered", num=150)
            assert all([await has_store(replica) for replica in fleet.replicas])
            proxy.toxics.latency_s = 0.0
        await fleet.check(load)


@pytest.mark.skipif(not NetworkNamespace.is_possible(), reason="needs root, and network namespaces")
async def test_row_31_a_redis_whose_packets_are_dropped(tmp_path: Path) -> None:
    with NetworkNamespace("redis") as network:
        redis = RedisServer(tmp_path / "redis", "protected-mode no", host=network.host, within=network.within)
        async with started(redis), fleet_over(redis.url, tmp_path) as fleet:
            async with fleet.load("metered0") as load:
                network.cut()
                await fleet.until_each(has_lost_store, "the store is lost")
                await load.until_more()
                network.heal()
                await fleet.until_store_is_up()
                await load.until_more()
            await fleet.check(load)

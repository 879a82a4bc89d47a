"""A command that is broken off never leaves its answer for somebody else to read."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from gateway.app.connections.store_opening import open_store
from gateway.store.address import parse_store
from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.guarded import GuardedStore
from tests.gateway.store.conftest import open_at
from tests.gateway.store.redis_server import ClusterSet, RedisServer
from tests.gateway.store.test_guarded import Heard

TENANTS = [f"tenant{i}" for i in range(8)]


async def put_canaries(store: Store, space: str) -> None:
    for tenant in TENANTS:
        await store.put(f"{space}.{tenant}", "canary", tenant.encode() * 50)


async def read_and_be_cancelled(store: Store, space: str, rng: random.Random, repeats: int) -> int:
    """Read canaries at full speed while most reads are cancelled somewhere on their way; how many came through."""
    read = 0

    async def one(tenant: str) -> None:
        nonlocal read
        found = await store.get(f"{space}.{tenant}", "canary")
        assert found is not None
        assert found.value == tenant.encode() * 50, "an answer of another tenant's command"
        read += 1

    for _ in range(repeats):
        tasks = [asyncio.create_task(one(rng.choice(TENANTS))) for _ in range(16)]
        await asyncio.sleep(rng.choice((0, 0, 0.0002, 0.0005, 0.001)))
        for task in tasks:
            if rng.random() < 0.7:
                task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result
    return read


@pytest.mark.parametrize("kind", ["redis", "cluster"])
async def test_no_answer_reaches_the_wrong_tenant_when_commands_are_cancelled(
    kind: str, redis_server: RedisServer, cluster_set: ClusterSet, space: str
) -> None:
    store = open_at(redis_server.url if kind == "redis" else cluster_set.url)
    await put_canaries(store, space)
    assert await read_and_be_cancelled(store, space, random.Random(11), 120) > 100
    await store.aclose()


async def test_nor_behind_the_timeout_that_cancels_slow_commands(redis_server: RedisServer, space: str) -> None:
    address = parse_store(redis_server.url)
    raw = open_store(address, timeout_s=0.03, clock=time.monotonic, wall=time.time)
    store = GuardedStore(raw, timeout_s=0.03, clock=time.monotonic, observer=Heard())
    await put_canaries(raw, space)
    rng, read = random.Random(12), 0
    for round_number in range(6):
        if round_number % 2:
            redis_server.freeze()
        sending = [asyncio.create_task(store.get(f"{space}.{tenant}", "canary")) for tenant in TENANTS]
        results = await asyncio.gather(*sending, return_exceptions=True)
        redis_server.thaw()
        for tenant, result in zip(TENANTS, results, strict=True):
            if isinstance(result, StoreUnavailable):
                assert result.reason in (StoreLoss.SLOW, StoreLoss.DOWN)
                continue
            assert not isinstance(result, BaseException)
            assert result is not None
            assert result.value == tenant.encode() * 50
            read += 1
        await store.ping()
        await read_and_be_cancelled(store, space, rng, 5)
    assert read >= 3 * len(TENANTS)
    await store.aclose()

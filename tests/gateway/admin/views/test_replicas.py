"""Two gateways behind one Redis: pages show totals over both, and go on alone when the store is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.stack import Stack, chat, policy_text, running
from tests.gateway.store.redis_server import RedisServer


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.kill()


@asynccontextmanager
async def replica(folder: Path, name: str, url: str) -> AsyncIterator[Stack]:
    own = folder / name
    own.mkdir()
    async with running(own, policy=policy_text(own), settings={"store.address": url, "store.timeout_s": 0.5}) as stack:
        yield stack


async def overview(stack: Stack) -> dict[str, Any]:
    found: dict[str, Any] = (await stack.get("/admin/api/overview?window=300", admin=True)).json
    return found


async def until(stack: Stack, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    for _ in range(300):
        found = await overview(stack)
        if is_so(found):
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(found)


async def test_totals_are_over_all_replicas_and_a_lost_store_is_stated(tmp_path: Path, redis: RedisServer) -> None:
    async with replica(tmp_path, "a", redis.url) as one, replica(tmp_path, "b", redis.url) as other:
        for stack, count in ((one, 2), (other, 3)):
            for _ in range(count):
                await stack.call(chat(stream=True))
        found = await until(one, lambda seen: seen["requests"]["count"] == 5)
        assert len(found["replicas"]["names"]) == 2
        assert found["requests"]["outcomes"] == {"completed": 5}
        assert next(row for row in found["ttft"] if row["bucket"] == "all")["count"] == 5
        assert found["deployments"][0]["limit"] == 16
        assert sum(round(point["completed"] * 5) for point in found["series"]) >= 5
        redis.kill()
        alone = await until(one, lambda seen: bool(seen["replicas"]["is_store_lost"]))
        assert alone["requests"]["count"] == 2
        assert len(alone["replicas"]["names"]) == 1


async def test_a_replica_that_left_is_not_counted_any_more(tmp_path: Path, redis: RedisServer) -> None:
    async with replica(tmp_path, "a", redis.url) as one:
        async with replica(tmp_path, "b", redis.url) as other:
            await other.call(chat())
            await until(one, lambda seen: seen["requests"]["count"] == 1)
        await until(one, lambda seen: len(seen["replicas"]["names"]) == 1 and seen["requests"]["count"] == 0)


async def test_nothing_is_reported_while_no_page_is_open(tmp_path: Path, redis: RedisServer) -> None:
    async with replica(tmp_path, "a", redis.url) as one:
        await asyncio.sleep(0)
        store = one.gateway._stores.control
        assert await store.keys("replicas") == ()
        await overview(one)
        for _ in range(300):
            if await store.keys("replicas", after="process/"):
                return
            await asyncio.sleep(0.1)
        raise AssertionError("a viewer did not make the process report")


async def requests_of(stack: Stack, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = (await stack.get(f"/admin/api/requests{query}", admin=True)).json
    return found


async def until_listed(stack: Stack, count: int, query: str = "") -> dict[str, Any]:
    for _ in range(300):
        found = await requests_of(stack, query)
        if len(found["requests"]) == count:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(found)


async def test_a_replica_that_died_is_named_and_not_counted(tmp_path: Path, redis: RedisServer) -> None:
    async with replica(tmp_path, "a", redis.url) as one, replica(tmp_path, "b", redis.url) as other:
        await other.call(chat())
        await until(one, lambda seen: seen["requests"]["count"] == 1)
        await other.gateway._tasks.cancel()  # as if it was killed: it reports no more, and takes no leave
        found = await until(one, lambda seen: bool(seen["replicas"]["lost"]))
        (lost,) = found["replicas"]["lost"]
        assert lost["name"] == other.gateway.recent.name
        assert lost["silent_s"] >= 4
        assert found["replicas"]["names"] == [one.gateway.recent.name]
        assert found["requests"]["count"] == 0
        assert [one_["name"] for one_ in (await requests_of(one))["replicas"]["lost"]] == [lost["name"]]


async def test_requests_are_not_reported_while_no_page_is_open(tmp_path: Path, redis: RedisServer) -> None:
    async with replica(tmp_path, "a", redis.url) as one, replica(tmp_path, "b", redis.url) as other:
        await other.call(chat())
        assert await one.gateway._stores.control.keys("requests") == ()
        await until_listed(one, 1)

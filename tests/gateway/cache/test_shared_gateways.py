"""Two gateways with one store: an answer that one was given is given by the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.gateway.cache.exact.test_exact_cache import cached_policy
from tests.gateway.stack import Stack, chat, running
from tests.gateway.store.redis_server import RedisServer

WITHIN_S = 1.0
PATIENCE_S = 60.0
"""A busy machine may need longer; nothing is waited for longer than it takes."""


@asynccontextmanager
async def replica(folder: Path, name: str, url: str) -> AsyncIterator[Stack]:
    """One of several gateways."""
    own = folder / name
    own.mkdir()
    settings = {"store.address": url, "cache.shared": True, "store.timeout_s": 0.5}
    async with running(own, policy=cached_policy(own), settings=settings) as stack:
        yield stack


def question(text: str) -> dict[str, Any]:
    return {**chat(), "messages": [{"role": "user", "content": text}]}


async def call(stack: Stack, text: str) -> str:
    """What the cache did."""
    return (await stack.call(question(text))).headers["x-penstock-cache"]


async def until_entries(stack: Stack, count: int) -> float:
    """Seconds until that many answers are stored."""
    started_at = time.monotonic()
    while stack.gateway._cache.exact.num_entries != count:
        assert time.monotonic() - started_at < PATIENCE_S, stack.gateway._cache.exact.num_entries
        await asyncio.sleep(0.01)
    return time.monotonic() - started_at


async def test_a_write_is_hit_on_another_replica_within_a_second(tmp_path: Path, url: str) -> None:
    async with replica(tmp_path, "a", url) as one, replica(tmp_path, "b", url) as other:
        waits = []
        for number in range(5):
            assert await call(one, f"question {number}") == "miss"
            waits.append(await until_entries(other, number + 1))
            assert await call(other, f"question {number}") == "hit-exact"
        assert sorted(waits)[2] < WITHIN_S
        assert len(other.small.received) == 0
        text = (await other.get("/metrics", admin=True)).body.decode()
        assert 'penstock_cache_sharing_total{event="taken"}' in text
        assert 'penstock_saved_tokens_total{source="hit_exact"}' in text


async def test_a_purge_and_feedback_reach_the_other_replica(tmp_path: Path, url: str) -> None:
    async with replica(tmp_path, "a", url) as one, replica(tmp_path, "b", url) as other:
        await call(one, "first")
        await until_entries(other, 1)
        served = await other.call(question("first"))
        wrong = {"request_id": served.headers["x-request-id"], "verdict": "wrong"}
        reported = await one.call(wrong, path="/v1/feedback")
        assert (reported.status, reported.json["quarantined"]) == (200, False)
        for stack in (one, other):
            deadline = time.monotonic() + PATIENCE_S
            while await call(stack, "first") != "miss":
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
        assert await call(one, "first") == "miss", "the same wrong answer is not kept again"

        await call(one, "second")
        await until_entries(other, 2)
        purge = {"route": "main", "dry_run": False}
        assert (await other.call(purge, path="/admin/api/cache/purge", admin=True)).json["covered"] == 2
        await until_entries(one, 0)


async def until_notified(stack: Stack) -> None:
    """Wait until the store has what this process stored."""
    sharing = stack.gateway._stores.sharing
    assert sharing is not None
    started_at = time.monotonic()
    while sharing._queue.num_waiting or not sharing._queue._versions:
        assert time.monotonic() - started_at < PATIENCE_S
        await asyncio.sleep(0.01)


async def test_one_gateway_alone_has_its_answers_again_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        await call(stack, "first")
        await until_notified(stack)
    async with running(tmp_path, policy=cached_policy(tmp_path)) as again:
        await until_entries(again, 1)
        assert await call(again, "first") == "hit-exact"
        assert await again.gateway._stores.control.keys("cache") == (), "they have a file of their own"


def answers_of(folder: Path) -> bytes:
    """Everything in the files of stored answers."""
    return b"".join(path.read_bytes() for path in folder.iterdir() if ".answers" in path.name)


async def test_where_settings_report_it_answers_stay_in_memory(tmp_path: Path) -> None:
    settings = {"cache.shared": False}
    for _ in range(2):
        async with running(tmp_path, policy=cached_policy(tmp_path), settings=settings) as stack:
            assert stack.gateway._stores.sharing is None
            assert await call(stack, "first") == "miss"
    assert b"chat.completion" not in answers_of(tmp_path), "the file is for stored responses alone"


async def test_a_replica_that_comes_later_begins_warm(tmp_path: Path, url: str) -> None:
    async with replica(tmp_path, "a", url) as one:
        await call(one, "first")
    async with replica(tmp_path, "b", url) as other:
        await until_entries(other, 1)
        assert await call(other, "first") == "hit-exact"


async def test_a_killed_redis_costs_sharing_and_nothing_else(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis").start()
    try:
        async with replica(tmp_path, "a", server.url) as one, replica(tmp_path, "b", server.url) as other:
            await call(one, "before")
            await until_entries(other, 1)
            server.kill()
            assert await call(other, "before") == "hit-exact"
            assert await call(one, "meanwhile") == "miss"
            assert await call(one, "meanwhile") == "hit-exact"
            server.start()  # empty
            await until_entries(other, 2)
            assert await call(other, "meanwhile") == "hit-exact"
            assert await call(other, "before") == "hit-exact"
    finally:
        server.kill()


async def test_nothing_of_it_waits_for_a_process_to_end_well(tmp_path: Path, url: str) -> None:
    async with replica(tmp_path, "a", url) as one:
        await call(one, "first")
        await until_notified(one)
        # The first is still up and has not closed its connection: a kill could not take more from it.
        async with replica(tmp_path, "b", url) as other:
            await until_entries(other, 1)
            assert await call(other, "first") == "hit-exact"

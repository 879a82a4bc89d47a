"""Requests of all processes that share a store, while a page shows them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.admin.api.request import AdminRequest
from tests.gateway.admin.views.test_replicas import replica, until_listed
from tests.gateway.stack import chat
from tests.gateway.store.redis_server import RedisServer


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.kill()


async def test_requests_of_all_replicas_are_listed_filtered_and_explained_with_who_served_them(
    tmp_path: Path, redis: RedisServer
) -> None:
    async with replica(tmp_path, "a", redis.url) as one, replica(tmp_path, "b", redis.url) as other:
        mine = (await one.call(chat())).headers["x-request-id"]
        theirs = (await other.call(chat())).headers["x-request-id"]
        await other.call(chat("nobody-serves-this"))
        found = await until_listed(one, 3)
        assert [row["at"] for row in found["requests"]] == sorted((r["at"] for r in found["requests"]), reverse=True)
        names = {row["id"]: row["replica"] for row in found["requests"]}
        assert (names[mine], names[theirs]) == (one.gateway.recent.name, other.gateway.recent.name)
        assert names[mine] != names[theirs]
        (rejected,) = (await until_listed(one, 1, "?outcome=rejected"))["requests"]
        assert rejected["replica"] == other.gateway.recent.name
        notified = (await one.get(f"/admin/api/requests/{theirs}", admin=True)).json["request"]
        assert (notified["id"], notified["replica"]) == (theirs, other.gateway.recent.name)
        assert notified["decisions"][0]["deployment"] == "small"
        assert (await one.get("/admin/api/requests/req_nobody", admin=True)).status == 404


async def test_the_live_feed_reports_of_requests_that_another_replica_served(
    tmp_path: Path, redis: RedisServer
) -> None:
    async with replica(tmp_path, "a", redis.url) as one, replica(tmp_path, "b", redis.url) as other:
        feed = one.gateway.room.feed._feed(AdminRequest({"type": "http", "query_string": b"topic=requests"}))
        notified: list[str] = []
        for count in (1, 2):
            served = (await other.call(chat())).headers["x-request-id"]
            for _ in range(300):
                event = json.loads(feed.event().partition(b"data: ")[2])
                notified += [row["id"] for row in event["requests"]]
                if len(notified) >= count:
                    break
                await asyncio.sleep(0.1)
            assert notified[-1] == served
        assert len(notified) == 2  # each of them once


async def test_a_lost_store_leaves_the_requests_of_the_own_process(tmp_path: Path, redis: RedisServer) -> None:
    async with replica(tmp_path, "a", redis.url) as one, replica(tmp_path, "b", redis.url) as other:
        mine = (await one.call(chat())).headers["x-request-id"]
        await other.call(chat())
        await until_listed(one, 2)
        redis.kill()
        (row,) = (await until_listed(one, 1))["requests"]
        assert row["id"] == mine
        assert (await one.get(f"/admin/api/requests/{mine}", admin=True)).status == 200
        assert (await one.get("/admin/api/requests/req_nobody", admin=True)).status == 404

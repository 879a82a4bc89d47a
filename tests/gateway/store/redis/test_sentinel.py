"""The primary is found while Sentinels hang, and the newest configuration counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.sentinel import MasterNotFoundError

from gateway.store.base import StoreUnavailable
from gateway.store.redis.sentinel import PrimaryFinder
from tests.gateway.store.conftest import open_at
from tests.gateway.store.redis_server import SentinelSet, until


class ScriptedFinder(PrimaryFinder):
    """A finder whose Sentinels answer in order, each with a view of the primary."""

    def __init__(self, order: Sequence[str]) -> None:
        super().__init__([(view, 26379) for view in order])

    async def _state_at(self, sentinel: Redis, service_name: str) -> dict[str, Any] | None:
        for _ in range(10 * self.sentinels.index(sentinel)):
            await asyncio.sleep(0)
        view = sentinel.connection_pool.connection_kwargs["host"]
        state = {"ip": "10.0.0.1", "port": 6379, "config-epoch": 3, "num-other-sentinels": 2, "is_master": True}
        return {**state, "is_sdown": view != "up", "is_odown": view == "odown"}


async def test_sentinels_that_hang_cost_no_time(sentinel_set: SentinelSet, space: str) -> None:
    sentinel_set.sentinels[0].freeze()
    try:
        store = open_at(sentinel_set.url)
        began_at = time.monotonic()
        assert await store.put(space, "k", b"v") == 1
        assert time.monotonic() - began_at < 0.4
        await store.aclose()
    finally:
        sentinel_set.sentinels[0].thaw()


async def test_a_sentinel_that_alone_fails_to_reach_the_primary_does_not_decide(tmp_path: Path, space: str) -> None:
    servers = SentinelSet(tmp_path)
    try:
        servers.start()
        first = servers.sentinels[0].admin
        first.execute_command("SENTINEL", "SET", servers.SERVICE, "rename-command", "PING", "NO-SUCH-COMMAND")
        until(lambda: first.sentinel_master(servers.SERVICE)["is_sdown"], "a Sentinel without its primary")
        for number in range(20):  # whichever answers first
            store = open_at(servers.url)
            assert await store.put(space, f"k{number}", b"v") == number + 1
            await store.aclose()
        assert not first.sentinel_master(servers.SERVICE)["is_odown"]
    finally:
        servers.kill()


@pytest.mark.parametrize("order", [*permutations(("up", "sdown", "odown"))])
async def test_the_primary_is_down_where_one_of_the_first_sentinels_knows_that_a_quorum_agrees(
    order: tuple[str, ...],
) -> None:
    finder = ScriptedFinder(order)
    if "odown" in order[:2]:
        with pytest.raises(MasterNotFoundError, match="down, and no other"):
            await finder.discover_master("any")
    else:  # more than half have answered, and one of these reaches the primary
        assert await finder.discover_master("any") == ("10.0.0.1", 6379)


async def test_a_call_that_does_not_end_when_it_is_cancelled_is_not_waited_for() -> None:
    """The library ends a cancelled call to a frozen Sentinel only at its timeout."""

    class StuckFinder(ScriptedFinder):
        async def _state_at(self, sentinel: Redis, service_name: str) -> dict[str, Any] | None:
            if sentinel is self.sentinels[0]:
                with suppress(asyncio.CancelledError):
                    await never.wait()
                await never.wait()
            return await super()._state_at(sentinel, service_name)

    never = asyncio.Event()
    async with asyncio.timeout(10):
        assert await StuckFinder(("up", "up", "up")).discover_master("any") == ("10.0.0.1", 6379)
        with pytest.raises(MasterNotFoundError, match="down, and no other"):
            await StuckFinder(("up", "sdown", "odown")).discover_master("any")
    never.set()


async def test_one_sentinel_of_three_is_enough_after_a_while(tmp_path: Path, space: str) -> None:
    servers = SentinelSet(tmp_path)
    try:
        servers.start()
        servers.sentinels[0].freeze()
        servers.sentinels[1].kill()
        store = open_at(servers.url)
        assert await store.put(space, "k", b"v") == 1
        servers.sentinels[2].kill()
        with pytest.raises(StoreUnavailable, match="none of 3 Sentinels answers"):
            await open_at(servers.url).put(space, "k", b"v")
        await store.aclose()
    finally:
        servers.kill()

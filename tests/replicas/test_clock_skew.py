"""Gateways whose clocks are an hour early or late (row 41): limits, keys and cached responses are right."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.store.redis_server import RedisServer
from tests.replicas.fleet import fleet_over

HOUR_S = 3600


async def test_row_41_clocks_that_are_an_hour_apart(tmp_path: Path, redis: RedisServer) -> None:
    programs = tuple(("tests.replicas.skewed_gateway", str(sign * HOUR_S), "gateway") for sign in (1, -1))
    async with fleet_over(redis.url, tmp_path, programs=programs) as fleet:
        async with fleet.load("metered0") as load:
            await load.until_more()
        await fleet.check(load)
        for _ in range(3):  # stored by the clock that is early, by the one that is late, by the right one
            fleet.replicas.append(fleet.replicas.pop(0))
            await fleet.check_cache()

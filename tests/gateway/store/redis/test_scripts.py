"""The scripts of the store in Redis."""

from __future__ import annotations

from gateway.store.base import Store
from tests.gateway.store.redis_server import RedisServer


async def test_scripts_come_back_after_redis_forgot_them(server: RedisServer, raw: Store) -> None:
    await raw.put("s", "k", b"1")
    server.admin.script_flush()
    assert await raw.put("s", "k", b"2") == 2

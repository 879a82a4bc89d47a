"""What gateways share: a store of each kind, empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.store.address import parse_store
from gateway.store.base import Store
from gateway.store.opening import open_store
from tests.gateway.store.redis_server import RedisServer


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.kill()


@pytest.fixture(params=["embedded", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    url = f"embedded:{tmp_path / 'labels.sqlite3'}"
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis")
        server.admin.flushall()
        url = server.url
    opened = open_store(parse_store(url), timeout_s=5.0, clock=asyncio.get_running_loop().time, wall=lambda: 1000.0)
    yield opened
    await opened.aclose()

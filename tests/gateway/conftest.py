"""What gateways share: a store of each kind, empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from gateway.app.connections.store_opening import open_store
from gateway.store.address import parse_store
from gateway.store.base import Store
from tests.gateway.store.redis_server import RedisServer


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis to be mistreated."""
    found = RedisServer(tmp_path / "redis").start()
    yield found
    found.kill()


@pytest.fixture(params=["embedded", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a store that is empty."""
    if request.param == "embedded":
        return f"embedded:{tmp_path / 'shared.sqlite3'}"
    redis: RedisServer = request.getfixturevalue("redis")
    redis.admin.flushall()
    return redis.url


@pytest.fixture
def wall() -> Callable[[], float]:
    """The store's wall clock."""
    return lambda: 1000.0


@pytest.fixture
async def store(url: str, wall: Callable[[], float]) -> AsyncIterator[Store]:
    """An open store of each kind."""
    connected = open_store(parse_store(url), timeout_s=5.0, clock=asyncio.get_running_loop().time, wall=wall)
    yield connected
    await connected.aclose()

"""What gateways share: a store of each kind, empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.store.redis_server import RedisServer


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.kill()


@pytest.fixture(params=["embedded", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a store that is empty."""
    if request.param == "embedded":
        return f"embedded:{tmp_path / 'shared.sqlite3'}"
    redis: RedisServer = request.getfixturevalue("redis")
    redis.admin.flushall()
    return redis.url

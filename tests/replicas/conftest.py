"""One Redis for the replicas of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.store.redis_server import RedisServer
from tests.replicas.fleet import started


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with started(RedisServer(tmp_path / "redis")) as server:
        yield server

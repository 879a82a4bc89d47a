"""One Redis of a test's own, and its store without a guard."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.store.base import Store
from tests.gateway.store.conftest import open_at
from tests.gateway.store.redis_server import RedisServer


@pytest.fixture
async def raw(server: RedisServer) -> AsyncIterator[Store]:
    found = open_at(server.url)
    await found.ping()
    yield found
    await found.aclose()

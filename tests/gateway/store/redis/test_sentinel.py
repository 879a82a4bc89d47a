"""The primary is found while Sentinels hang, and the newest configuration counts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway.store.base import StoreUnavailable
from tests.gateway.store.conftest import open_at
from tests.gateway.store.redis_server import SentinelSet


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

"""The store that the settings name, not connected before its first operation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.app.connections.store_opening import open_examined, open_store
from gateway.store.address import parse_store
from gateway.store.base import StoreLoss, StoreUnavailable
from tests.gateway.store.test_guarded import Heard


async def test_an_embedded_store_is_made_by_its_first_operation(tmp_path: Path) -> None:
    path = tmp_path / "shared.sqlite3"
    store = open_store(parse_store(f"embedded:{path}"), timeout_s=5.0)
    assert not path.exists()
    await store.put("s", "k", b"v")
    assert path.exists()
    await store.aclose()


async def test_a_broken_file_is_put_aside_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "shared.sqlite3"
    path.write_bytes(b"no database" * 1000)
    reported: list[str] = []
    store = open_store(parse_store(f"embedded:{path}"), timeout_s=5.0, on_damage=reported.append)
    with pytest.raises(StoreUnavailable):
        await store.get("s", "k")
    await store.put("s", "k", b"v")
    assert len(reported) == 1
    await store.aclose()


async def test_a_redis_that_is_not_there_is_down_at_its_first_operation() -> None:
    store = open_store(parse_store("redis://127.0.0.1:1/0"), timeout_s=1.0, clock=asyncio.get_running_loop().time)
    with pytest.raises(StoreUnavailable) as caught:
        await store.ping()
    assert caught.value.reason is StoreLoss.DOWN
    await store.aclose()


async def test_an_examined_store_is_the_same_with_and_without_its_guard(tmp_path: Path) -> None:
    store, guarded = open_examined(parse_store(f"embedded:{tmp_path}/shared.sqlite3"), Heard())
    await guarded.put("s", "k", b"v")
    entry = await store.get("s", "k")
    assert entry is not None
    assert entry.value == b"v"
    await guarded.aclose()

"""Members by a list in the store."""

from __future__ import annotations

import msgspec
import pytest

from gateway.discovery.source import SourceError
from gateway.discovery.store_list import LOOK_S, SPACE, MemberList, StoreList
from gateway.store.base import StoreEntry, StoreLoss, StoreUnavailable
from tests.docs.examples.memory_store import MemoryStore
from tests.gateway.discovery.recorded import Pauses, following


class LosableStore(MemoryStore):
    """A store that a test can take away."""

    is_lost = False

    async def get(self, space: str, key: str) -> StoreEntry | None:
        if self.is_lost:
            raise StoreUnavailable(StoreLoss.DOWN, "gone")
        return await super().get(space, key)


async def write(store: MemoryStore, *members: str) -> None:
    await store.put(SPACE, "engines", msgspec.json.encode({"members": members}))


async def test_changes_of_the_list_are_followed() -> None:
    store, pauses = LosableStore(), Pauses()
    await write(store, "10.0.0.2:8000", "[fd00::1]:8000")
    async with following(StoreList("engines", store, pause=pauses)) as seen:
        assert await seen.next() == ["10.0.0.2:8000", "[fd00::1]:8000"]
        await write(store)
        assert await pauses.pass_() == LOOK_S
        assert await seen.next() == []


async def test_a_lost_store_and_a_lost_list_are_failures() -> None:
    store, pauses = LosableStore(), Pauses()
    async with following(StoreList("engines", store, pause=pauses)) as seen:
        assert 'no list "engines"' in await seen.failure()
        store.is_lost = True
        await pauses.pass_()
        assert "down" in await seen.failure()
        store.is_lost = False
        await write(store, "10.0.0.1:1")
        await pauses.pass_()
        assert await seen.next() == ["10.0.0.1:1"]


async def test_an_entry_that_is_no_list_is_a_failure() -> None:
    store, pauses = LosableStore(), Pauses()
    await store.put(SPACE, "engines", b'{"members": 3}')
    async with following(StoreList("engines", store, pause=pauses)) as seen:
        assert "engines" in await seen.failure()


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:b", "a:123456", "fd00::1:80", "a:٣", "http://a:1"])
def test_an_address_has_a_host_and_a_port(text: str) -> None:
    with pytest.raises(SourceError):
        MemberList(members=(text,)).addresses()

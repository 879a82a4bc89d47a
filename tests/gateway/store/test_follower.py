"""A follower of a store that begins anew, or comes back as it was before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store.base import Changes, Store, StoreEntry
from gateway.store.follower import ChangeFollower
from tests.gateway.store.conftest import open_at

SPACE = "test"


class Replaced:
    """What a follower calls of a store, which can be replaced by another one."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def get(self, space: str, key: str) -> StoreEntry | None:
        return await self.store.get(space, key)

    async def keys(self, space: str, *, after: str = "", limit: int = 1000) -> tuple[str, ...]:
        return await self.store.keys(space, after=after, limit=limit)

    async def changes(self, space: str, *, after: int | None = None, limit: int = 1000) -> Changes:
        return await self.store.changes(space, after=after, limit=limit)


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[list[Store]]:
    found = [open_at(f"embedded:{tmp_path / name}.sqlite3") for name in ("before", "after")]
    yield found
    for store in found:
        await store.aclose()


class Taken:
    """What a follower handed on, the last word on each key."""

    def __init__(self, store: Store) -> None:
        self.now: dict[str, bytes] = {}
        self.num = 0
        self.place = Replaced(store)
        self.follower = ChangeFollower(self.place, SPACE, self.take)  # type: ignore[arg-type]

    async def take(self, key: str, value: bytes | None) -> None:
        self.num += 1
        self.now.pop(key, None)
        if value is not None:
            self.now[key] = value


async def put(store: Store, **values: bytes) -> None:
    for key, value in values.items():
        await store.put(SPACE, key, value)


@pytest.mark.parametrize("num_more", [0, 1, 2, 3, 20])
async def test_nothing_is_missed_of_a_store_that_began_anew_however_far_it_has_come(
    stores: list[Store], num_more: int
) -> None:
    before, after = stores
    taken = Taken(before)
    await put(before, a=b"1", b=b"1", c=b"1")
    await taken.follower.catch_up()
    await put(after, a=b"2", c=b"2", **{f"d{i}": b"2" for i in range(num_more)})
    taken.place.store = after
    await taken.follower.catch_up()
    assert taken.now == dict.fromkeys(("a", "c", *(f"d{i}" for i in range(num_more))), b"2")
    assert taken.follower.num_gaps == 1


async def test_nothing_is_missed_when_a_change_seen_last_has_been_replaced(stores: list[Store]) -> None:
    before, after = stores
    taken = Taken(before)
    await put(before, a=b"1")
    await taken.follower.catch_up()
    await put(before, b=b"lost")
    await taken.follower.catch_up()
    await put(after, a=b"1", c=b"2", d=b"2")
    taken.place.store = after
    await taken.follower.catch_up()
    assert taken.now == {"a": b"1", "c": b"2", "d": b"2"}


async def test_a_store_that_goes_on_is_read_once(stores: list[Store]) -> None:
    store, _ = stores
    taken = Taken(store)
    await taken.follower.catch_up()
    for value in (b"1", b"2", b"2", b"3"):
        await put(store, a=value)
        await taken.follower.catch_up()
        await taken.follower.catch_up()
    assert (taken.num, taken.follower.num_gaps, taken.now) == (4, 0, {"a": b"3"})

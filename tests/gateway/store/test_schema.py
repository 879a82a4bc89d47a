"""The schema version of a store: who may share it, and who is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.schema import KEY, SCHEMA, SPACE, SchemaMismatch, SchemaVersion, StampedStore
from tests.gateway.store.conftest import open_at


@pytest.fixture
def raw(tmp_path: Path) -> Store:
    return open_at(f"embedded:{tmp_path / 'store.sqlite3'}")


@pytest.mark.parametrize(
    ("mine", "theirs", "is_shared"),
    [
        ((1, 0), (1, 0), True),
        ((1, 0), (1, 1), True),
        ((1, 3), (1, 2), True),
        ((1, 0), (1, 2), False),
        ((1, 0), (2, 0), False),
        ((2, 0), (1, 9), False),
    ],
)
def test_one_minor_apart_is_shared_and_nothing_else(
    mine: tuple[int, int], theirs: tuple[int, int], is_shared: bool
) -> None:
    assert SchemaVersion(*mine).shares_with(SchemaVersion(*theirs)) is is_shared


async def test_an_upgrade_raises_the_mark_and_the_older_version_goes_on(raw: Store) -> None:
    older, newer = StampedStore(raw, SchemaVersion(1, 0)), StampedStore(raw, SchemaVersion(1, 1))
    await older.put("s", "k", b"old")
    await newer.ping()
    await older.ping()
    assert await newer.get("s", "k") == await older.get("s", "k")
    mark = await raw.get(SPACE, KEY)
    assert mark is not None
    assert mark.value == b'{"major":1,"minor":1}'
    await raw.aclose()


async def test_a_running_version_that_is_left_too_far_behind_stops_using_the_store(raw: Store) -> None:
    old, newer, newest = (StampedStore(raw, SchemaVersion(1, minor)) for minor in (0, 1, 2))
    await old.ping()
    await newer.ping()
    await newest.ping()
    with pytest.raises(SchemaMismatch, match=r"schema 1\.2, and this version shares 1\.0") as refused:
        await old.ping()
    assert (refused.value.reason, refused.value.was_sent) == (StoreLoss.REFUSED, False)
    with pytest.raises(StoreUnavailable):
        await old.get("s", "k")
    await newer.ping()
    await raw.delete(SPACE, KEY)  # the store was emptied
    await old.ping()
    assert await old.get("s", "k") is None
    await raw.aclose()


async def test_a_store_that_takes_no_writes_and_has_no_mark_is_read_and_marked_later(
    raw: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await raw.put("s", "k", b"v")
    stamped = StampedStore(raw)

    async def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable(StoreLoss.FULL, "full", was_sent=False)

    with monkeypatch.context() as full:
        full.setattr(raw, "put", refuse)
        assert await stamped.get("s", "k") is not None
        with pytest.raises(StoreUnavailable, match="full"):
            await stamped.put("s", "k", b"w")
    assert await raw.get(SPACE, KEY) is None
    await stamped.ping()
    assert await raw.get(SPACE, KEY) is not None
    await raw.aclose()


@pytest.mark.parametrize("value", [b'{"major":2,"minor":0}', b"\x00", b"{}"])
async def test_a_store_of_another_major_or_with_a_mark_nobody_reads_is_refused_at_the_first_operation(
    raw: Store, value: bytes
) -> None:
    await raw.put(SPACE, KEY, value)
    with pytest.raises(SchemaMismatch):
        await StampedStore(raw).put("s", "k", b"v")
    assert await raw.get("s", "k") is None
    await raw.aclose()


async def test_a_store_without_a_mark_is_of_the_first_version(raw: Store) -> None:
    await raw.put("s", "k", b"v")
    assert await StampedStore(raw, SCHEMA).get("s", "k") is not None
    await raw.aclose()

"""Sharing of cached responses between processes, over every kind of store that is at hand."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.cache.exact.entry import CacheEntry, encode_entry
from gateway.cache.exact.exact_cache import ExactCache
from gateway.cache.exact.exact_tier import ExactTier, Selection
from gateway.cache.sharing import notices
from gateway.cache.sharing.notices import SPACE, entry_key
from gateway.cache.sharing.sharing import CacheSharing
from gateway.store.base import Changes, Store, StoreEntry, StoreLoss, StoreUnavailable
from gateway.store.embedded import EmbeddedStore

NOW = 1_000_000.0
_NAMES = itertools.count()


def answer(text: str, id: str = "c") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return msgspec.json.encode({"id": id, "choices": [choice]})


def entry(number: int, text: str = "yes", **more: Any) -> CacheEntry:
    fields: dict[str, Any] = {
        "id": f"r{number}",
        "exact": number.to_bytes(4, "little"),
        "context": b"c",
        "text": f"Question {number}",
        "answer": answer(text),
        "tenant": "a",
        "route": "faq",
        "deployment": "small",
        "created_at": NOW,
        "expires_at": NOW + 3600,
    }
    return CacheEntry(**(fields | more))


class Process:
    """One gateway's cache and its end of the sharing; its background is run by hand."""

    def __init__(self, store: Store, *, max_bytes: int = 1_000_000, is_mirror: bool = False) -> None:
        self.tier = ExactTier(max_bytes=max_bytes, on_evicted=lambda entry: self.cache.evicted(entry))
        self.cache = ExactCache(self.tier, wall=self.wall)
        self.counts: Counter[str] = Counter()
        self.sharing = CacheSharing(
            self.cache,
            store,
            wall=self.wall,
            new_name=lambda: f"n{next(_NAMES)}",
            count=lambda event: self.counts.update([event]),
            is_mirror=is_mirror,
        )
        self.cache.share_with(self.sharing)

    def wall(self) -> float:
        return NOW + 1

    def keep(self, saved: CacheEntry) -> None:
        if self.tier.put(saved, NOW):
            self.sharing.stored(saved, saved.expires_at)

    async def announce(self) -> None:
        """Write what waits."""
        queue = self.sharing._queue
        while queue.num_waiting:
            assert await queue.flush()

    def has(self, number: int) -> bool:
        return self.tier.find(entry(number).exact, NOW + 1) is not None


async def pair(store: Store) -> tuple[Process, Process]:
    """Two processes that have begun to follow."""
    one, other = Process(store), Process(store)
    await one.sharing.catch_up()
    await other.sharing.catch_up()
    return one, other


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    found = EmbeddedStore(tmp_path / "store.sqlite3", wall=lambda: NOW + 1)
    yield found
    await found.aclose()


async def test_what_one_keeps_the_other_has(store: Store) -> None:
    one, other = await pair(store)
    one.keep(entry(1))
    await one.announce()
    await other.sharing.catch_up()

    assert other.has(1)
    assert other.counts["taken"] == 1
    await one.sharing.catch_up()
    assert one.counts["taken"] == 0, "nobody reads what it wrote itself"


async def test_a_new_process_begins_with_what_is_stored(store: Store) -> None:
    one = Process(store)
    for number in range(40):
        one.keep(entry(number))
    await one.announce()
    late = Process(store)
    await late.sharing.catch_up()

    assert all(late.has(number) for number in range(40))


async def test_what_is_damaged_or_of_another_schema_is_deleted_and_counted(store: Store) -> None:
    good = encode_entry(entry(3))
    flipped = bytearray(encode_entry(entry(1)))
    flipped[len(flipped) // 2] ^= 1
    await store.put(SPACE, entry_key(entry(1).exact), bytes(flipped))
    await store.put(SPACE, entry_key(entry(2).exact), encode_entry(entry(2, schema=99)))
    await store.put(SPACE, entry_key(entry(4).exact), good)  # somebody else's place
    await store.put(SPACE, entry_key(entry(3).exact), good)
    await store.put(SPACE, notices.QUARANTINE + "aa.bb", b"rubbish")
    process = Process(store)
    await process.sharing.catch_up()

    assert [process.has(number) for number in (1, 2, 3, 4)] == [False, False, True, False]
    assert process.counts["corrupt"] == 4
    assert await store.keys(SPACE) == (entry_key(entry(3).exact),)


async def test_a_wrong_answer_is_given_by_nobody_even_when_it_comes_again(store: Store) -> None:
    one, other = await pair(store)
    one.keep(entry(1))
    await one.announce()
    await other.sharing.catch_up()
    assert other.cache.note_wrong("r1", "a")
    await other.announce()
    await one.sharing.catch_up()
    late = Process(store)
    await late.sharing.catch_up()

    for process in (one, other, late):
        assert not process.has(1)
        process.cache.take(entry(1, id="again", answer=answer("yes", id="other")))
        assert not process.has(1), "the same words"
        process.cache.take(entry(1, "no", id="better", created_at=NOW + 1))
        assert process.has(1), "another answer"


async def test_feedback_reaches_the_process_that_gave_the_answer(store: Store) -> None:
    one, other = await pair(store)
    one.keep(entry(1))
    one.cache.note_hit("served", "r1")
    assert not other.cache.note_wrong("served", "a")
    assert other.cache.pass_on_doubt("served", "a")
    await other.announce()
    await one.sharing.catch_up()
    assert not one.has(1)


async def test_nobody_can_call_another_tenants_answer_wrong(store: Store) -> None:
    one, other = await pair(store)
    one.keep(entry(1))
    other.cache.pass_on_doubt("r1", "b")
    await other.announce()
    await one.sharing.catch_up()
    assert one.has(1)


async def test_a_purge_reaches_memory_store_and_those_who_come_later(store: Store) -> None:
    one, other = await pair(store)
    one.keep(entry(1))
    one.keep(entry(2, tenant="b"))
    await one.announce()
    await other.sharing.catch_up()
    other.keep(entry(3))  # not written yet
    one.cache.purge(Selection(tenant="a"), dry_run=False)
    await one.announce()
    await other.sharing.catch_up()
    await other.announce()
    assert [other.has(number) for number in (1, 2, 3)] == [False, True, False]

    await one.sharing.sweep(Selection(tenant="a"))
    assert [key for key in await store.keys(SPACE) if key.startswith("e.")] == [entry_key(entry(2).exact)]
    late = Process(store)
    await late.sharing.catch_up()
    assert [late.has(number) for number in (1, 2, 3)] == [False, True, False]


async def test_a_dry_run_is_not_reported(store: Store) -> None:
    one, _ = await pair(store)
    one.cache.purge(Selection(tenant="a"), dry_run=True)
    assert one.sharing._queue.num_waiting == 0


class Lost:
    """A store that is lost when it is given to be."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_lost = False

    async def put(self, space: str, key: str, value: bytes, *, ttl_s: float | None = None) -> int | None:
        self._check()
        return await self._store.put(space, key, value, ttl_s=ttl_s)

    async def get(self, space: str, key: str) -> StoreEntry | None:
        self._check()
        return await self._store.get(space, key)

    async def keys(self, space: str, *, after: str = "", limit: int = 1000) -> Sequence[str]:
        self._check()
        return await self._store.keys(space, after=after, limit=limit)

    async def changes(self, space: str, *, after: int | None = None, limit: int = 1000) -> Changes:
        self._check()
        return await self._store.changes(space, after=after, limit=limit)

    def _check(self) -> None:
        if self.is_lost:
            raise StoreUnavailable(StoreLoss.DOWN, "away", was_sent=False)


async def test_a_lost_store_loses_nothing_but_sharing(store: Store) -> None:
    lost = Lost(store)
    one, other = await pair(lost)  # type: ignore[arg-type]
    lost.is_lost = True
    one.keep(entry(1))
    one.cache.note_wrong("unknown", "a")
    for _ in range(10):
        assert not await one.sharing._queue.flush()
    with pytest.raises(StoreUnavailable):
        await other.sharing.catch_up()
    assert one.has(1)

    lost.is_lost = False
    await one.announce()
    await other.sharing.catch_up()
    assert other.has(1)


async def test_a_store_that_began_anew_is_followed_from_its_beginning(tmp_path: Path) -> None:
    first = EmbeddedStore(tmp_path / "first.sqlite3", wall=lambda: NOW + 1)
    process = Process(first)
    one = Process(first)
    for number in range(10):
        one.keep(entry(number))
    await one.announce()
    await process.sharing.catch_up()
    await first.aclose()
    second = EmbeddedStore(tmp_path / "second.sqlite3", wall=lambda: NOW + 1)
    process.sharing._store = second
    await second.put(SPACE, entry_key(entry(99).exact), encode_entry(entry(99)))
    await process.sharing.catch_up()
    await process.sharing.catch_up()
    await second.aclose()

    assert process.has(99)
    assert process.has(5), "what is in memory stays"


async def stored(store: Store) -> int:
    """Entries in the store."""
    return len([key for key in await store.keys(SPACE) if key.startswith("e.")])


@pytest.mark.parametrize(("is_mirror", "num_stored"), [(True, 10), (False, 40)])
async def test_what_makes_room_leaves_a_mirrors_store_too(store: Store, is_mirror: bool, num_stored: int) -> None:
    process = Process(store, max_bytes=10 * entry(10).num_bytes, is_mirror=is_mirror)
    for number in range(10, 50):
        process.keep(entry(number))
        await process.announce()
    await process.sharing.catch_up()
    assert (len(process.tier), await stored(store)) == (10, num_stored)


async def test_a_start_with_less_room_leaves_no_more_in_the_store_than_it_takes(store: Store) -> None:
    before = Process(store, is_mirror=True)
    for number in range(40):
        before.keep(entry(number))
    await before.announce()
    after = Process(store, max_bytes=10 * entry(0).num_bytes, is_mirror=True)
    await after.sharing.catch_up()
    await after.announce()
    assert 0 < await stored(store) <= 10
    assert len(after.tier) == await stored(store)


async def test_an_answer_that_comes_again_is_not_removed_for_having_left(store: Store) -> None:
    process = Process(store, is_mirror=True)
    await process.sharing.catch_up()
    process.keep(entry(1))
    await process.announce()
    process.sharing.evicted(entry(1).exact)
    process.keep(entry(1))
    await process.announce()
    assert await stored(store) == 1

    process.sharing.evicted(entry(1).exact)
    await process.announce()
    process.keep(entry(1, id="again", created_at=NOW + 1))
    await process.sharing.catch_up()  # it reads of the removal before the answer is written again
    await process.announce()
    await process.sharing.catch_up()
    assert process.has(1)
    assert await stored(store) == 1


async def test_waiting_writes_are_bounded_and_the_oldest_go(store: Store) -> None:
    process = Process(store)
    for number in range(60):
        process.sharing.stored(entry(number, answer=b"x" * 200_000), NOW + 60)
    queue = process.sharing._queue
    assert sum(each.num_bytes for each in queue.waiting()) <= 8 * 1024 * 1024
    assert process.counts["dropped"] == 60 - queue.num_waiting
    assert queue.waiting()[-1].id == "r59"

    process.sharing.stored(entry(60, answer=b"x" * 1_000_000), NOW + 60)
    assert queue.waiting()[-1].id == "r59", "too large to share"


async def test_an_entry_without_a_stored_form_is_dropped_and_what_follows_is_shared(store: Store) -> None:
    one, other = await pair(store)
    one.keep(entry(1, cost_tokens=2**65))
    one.keep(entry(2))
    await one.announce()
    await other.sharing.catch_up()
    assert (one.has(1), other.has(1), other.has(2)) == (True, False, True)
    assert one.counts == {"dropped": 1, "written": 1}

"""SharedTier and AnswerFile: a worker reads the machine's cached responses without a copy of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cache.exact.entry import CacheEntry, encode_entry
from gateway.cache.exact.exact_tier import Selection
from gateway.cache.sharing.notices import SPACE, entry_key
from gateway.machine.answer_file import AnswerFile
from gateway.machine.shared_tier import NEWEST_BYTES, SharedTier
from gateway.store.embedded import EmbeddedStore

NOW = 1_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        self.now += 2.0  # a file that is not there is looked for again
        return self.now


def entry(number: int, *, size: int = 10, tenant: str = "t", lifetime_s: float = 3600.0) -> CacheEntry:
    return CacheEntry(
        id=f"req_{number}",
        exact=number.to_bytes(16, "big"),
        context=b"c" * 16,
        text=f"question {number}",
        answer=b"a" * size,
        tenant=tenant,
        route="r",
        deployment="d",
        created_at=NOW,
        expires_at=NOW + lifetime_s,
    )


async def write(path: Path, *entries: CacheEntry) -> None:
    """As another process does."""
    store = EmbeddedStore(path, wall=lambda: NOW)
    for one in entries:
        await store.put(SPACE, entry_key(one.exact), encode_entry(one), ttl_s=one.expires_at - NOW)
    await store.aclose()


@pytest.fixture
def failures() -> list[Exception]:
    return []


@pytest.fixture
def removed() -> list[CacheEntry]:
    return []


@pytest.fixture
def tier(tmp_path: Path, failures: list[Exception], removed: list[CacheEntry]) -> Iterator[SharedTier]:
    file = AnswerFile(tmp_path / "answers", wall=Clock(), on_failure=failures.append)
    yield SharedTier(file, on_removed=removed.append)
    file.close()


async def test_finds_what_another_process_wrote(tier: SharedTier, tmp_path: Path) -> None:
    one = entry(1)
    assert tier.find(one.exact, NOW) is None  # there is no file yet
    await write(tmp_path / "answers", one)

    assert tier.find(one.exact, NOW) == one
    assert tier.by_id(one.id) == one
    assert tier.by_exact(one.exact) == one
    assert tier.take_hits() == [one.exact]
    assert tier.take_hits() == []
    assert len(tier) == 0  # no copy


async def test_obeys_age_quarantine_and_purge(tier: SharedTier, tmp_path: Path) -> None:
    first, second = entry(1), entry(2, tenant="other")
    await write(tmp_path / "answers", first, second)

    assert tier.find(first.exact, NOW + 100, max_age_s=50) is None
    assert tier.find(first.exact, NOW) == first
    tier.quarantine(first.id)
    assert tier.is_quarantined(first.id)
    assert tier.find(first.exact, NOW) is None
    tier.purge(Selection(tenant="other", until=NOW + 1), dry_run=True)
    assert tier.find(second.exact, NOW) == second
    tier.purge(Selection(tenant="other", until=NOW + 1), dry_run=False)
    assert tier.find(second.exact, NOW) is None


async def test_its_own_newest_stay_in_bounded_memory_until_the_file_has_them(
    tier: SharedTier, removed: list[CacheEntry]
) -> None:
    size = 100_000
    for number in range(100):
        assert tier.put(entry(number, size=size), NOW)
    tier.check_integrity()

    assert tier.find(entry(99).exact, NOW) is not None
    assert tier.num_bytes <= NEWEST_BYTES
    assert not removed  # they are in the file by then, and in the index


async def test_the_index_hears_of_entries_that_left_the_file(tier: SharedTier, removed: list[CacheEntry]) -> None:
    one, two = entry(1), entry(2, lifetime_s=10)
    assert tier.take(two, NOW)
    assert tier.take(one, NOW)
    assert one.exact in tier
    assert not tier.take(entry(3, lifetime_s=10), NOW + 20)
    tier.take(entry(4), NOW + 20)  # what has expired goes with the next one

    assert [gone.exact for gone in removed] == [two.exact]
    tier.discard(one.exact)
    assert [gone.exact for gone in removed] == [two.exact, one.exact]
    assert one.exact not in tier


async def test_a_damaged_file_is_a_miss_and_one_that_replaces_it_is_read(
    tier: SharedTier, tmp_path: Path, failures: list[Exception]
) -> None:
    path = tmp_path / "answers"
    path.write_bytes(b"no database at all" * 1000)
    assert tier.find(entry(1).exact, NOW) is None
    assert failures
    path.unlink()
    await write(path, entry(1))
    assert tier.find(entry(1).exact, NOW) == entry(1)


async def test_a_read_costs_tens_of_microseconds(tier: SharedTier, tmp_path: Path) -> None:
    await asyncio.gather(write(tmp_path / "answers", *(entry(number, size=1500) for number in range(200))))
    began = time.process_time()
    for number in range(200):
        assert tier.find(entry(number).exact, NOW) is not None
    assert (time.process_time() - began) / 200 < 0.001

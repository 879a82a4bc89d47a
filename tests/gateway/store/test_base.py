"""What every Store does, whatever it is made of."""

from __future__ import annotations

import asyncio
import random
from hashlib import sha256

import pytest

from gateway.store.base import MAX_KEY_BYTES, MAX_VALUE_BYTES, Exchanged, Hold, Store, StoreChange, StoreEntry
from gateway.store.meter import MAX_AHEAD, MAX_BUCKET_UNITS, NEVER_S, Draw, Meter, Period, draw_units

MINUTE = Meter("requests", Period.MINUTE, 100)
DAY = Meter("tokens_per_day", Period.DAY, 10_000_000_000)


async def one(store: Store, space: str, request: Draw, holder: str = "a") -> Exchanged:
    return await store.exchange(space, holder, [request])


class TestEntries:
    async def test_what_was_put_is_read_back_with_its_version(self, store: Store, space: str) -> None:
        assert await store.get(space, "k") is None
        assert await store.put(space, "k", b"\x00\xff one") == 1
        assert await store.put(space, "other", b"") == 2
        assert await store.put(space, "k", b"two") == 3
        assert await store.get(space, "k") == StoreEntry(b"two", 3)
        assert await store.get(space, "other") == StoreEntry(b"", 2)

    async def test_spaces_know_nothing_of_each_other(self, store: Store, space: str) -> None:
        await store.put(space, "k", b"mine")
        assert await store.get(f"{space}.x", "k") is None
        assert await store.put(f"{space}.x", "k", b"other") == 1

    async def test_a_value_may_be_large_and_a_key_may_have_any_letters(self, store: Store, space: str) -> None:
        key, value = "schlüssel {}:*?[ \n\u2603", random.Random(1).randbytes(1 << 20)
        await store.put(space, key, value)
        assert await store.get(space, key) == StoreEntry(value, 1)
        assert await store.keys(space) == (key,)

    @pytest.mark.parametrize("key", ["", "a\0b", "k" * (MAX_KEY_BYTES + 1)])
    async def test_a_key_no_store_can_hold_is_refused(self, store: Store, space: str, key: str) -> None:
        with pytest.raises(ValueError, match="key"):
            await store.put(space, key, b"")

    async def test_a_value_no_store_should_hold_is_refused(self, store: Store, space: str) -> None:
        with pytest.raises(ValueError, match="value"):
            await store.put(space, "k", bytes(MAX_VALUE_BYTES + 1))

    async def test_an_entry_is_gone_when_its_time_is_over(self, store: Store, space: str) -> None:
        await store.put(space, "short", b"1", ttl_s=0.05)
        await store.put(space, "long", b"2", ttl_s=60)
        await store.put(space, "kept", b"3", ttl_s=0.05)
        await store.put(space, "kept", b"3")
        await asyncio.sleep(0.1)
        assert await store.get(space, "short") is None
        assert await store.keys(space) == ("kept", "long")
        assert await store.put(space, "short", b"again", expect=0) == 5

    async def test_a_write_that_expects_a_version_happens_only_over_it(self, store: Store, space: str) -> None:
        assert await store.put(space, "k", b"a", expect=7) is None
        assert await store.put(space, "k", b"a", expect=0) == 1
        assert await store.put(space, "k", b"b", expect=0) is None
        assert await store.put(space, "k", b"b", expect=1) == 2
        assert await store.get(space, "k") == StoreEntry(b"b", 2)

    async def test_of_many_who_write_over_one_version_one_wins(self, store: Store, space: str) -> None:
        await store.put(space, "k", b"first")
        versions = await asyncio.gather(*(store.put(space, "k", b"%d" % i, expect=1) for i in range(20)))
        assert sorted(filter(None, versions)) == [2]
        found = await store.get(space, "k")
        assert found is not None
        assert found.value == b"%d" % versions.index(2)

    async def test_a_version_never_comes_back_after_a_delete(self, store: Store, space: str) -> None:
        await store.put(space, "k", b"a")
        assert await store.delete(space, "k", expect=9) is False
        assert await store.delete(space, "k", expect=1) is True
        assert await store.delete(space, "k") is False
        assert await store.put(space, "k", b"a", expect=0) == 3

    async def test_keys_come_in_the_order_of_their_bytes_page_by_page(self, store: Store, space: str) -> None:
        names = ["a", "B", "ä", "aa", "10", "9"]
        for name in names:
            await store.put(space, name, b"")
        await store.delete(space, "aa")
        names.remove("aa")
        expected = tuple(sorted(names, key=str.encode))
        assert await store.keys(space) == expected
        assert await store.keys(space, limit=2) == expected[:2]
        assert await store.keys(space, after=expected[1], limit=2) == expected[2:4]


class TestChanges:
    async def test_a_reader_sees_each_changed_key_once_and_goes_on_from_there(self, store: Store, space: str) -> None:
        start = (await store.changes(space)).cursor
        await store.put(space, "a:b", b"1")
        await store.put(space, "c", b"1")
        await store.put(space, "a:b", b"2")
        await store.delete(space, "c")
        found = await store.changes(space, after=start)
        assert found.changes == (StoreChange(3, "a:b"), StoreChange(4, "c"))
        assert (found.cursor, found.is_gap) == (4, False)
        assert (await store.changes(space, after=4)).changes == ()
        await store.put(space, "d", b"")
        assert (await store.changes(space, after=4)).changes == (StoreChange(5, "d"),)

    async def test_a_long_feed_comes_in_pieces(self, store: Store, space: str) -> None:
        for i in range(7):
            await store.put(space, f"k{i}", b"")
        seen, cursor = [], 0
        while found := await store.changes(space, after=cursor, limit=3):
            seen += [change.key for change in found.changes]
            cursor = found.cursor
            if not found.changes:
                break
        assert seen == [f"k{i}" for i in range(7)]

    async def test_a_cursor_from_another_life_of_the_store_is_a_gap(self, store: Store, space: str) -> None:
        await store.put(space, "k", b"")
        found = await store.changes(space, after=99)
        assert (found.cursor, found.changes, found.is_gap) == (1, (), True)


class TestLog:
    async def test_entries_are_numbered_without_holes(self, store: Store, space: str) -> None:
        numbers = await asyncio.gather(*(store.append(space, "audit", b"%d" % i) for i in range(20)))
        assert sorted(filter(None, numbers)) == list(range(1, 21))
        entries = await store.read_log(space, "audit")
        assert [entry.seq for entry in entries] == list(range(1, 21))
        assert [numbers[int(entry.payload)] for entry in entries] == list(range(1, 21))
        assert [entry.seq for entry in await store.read_log(space, "audit", after=5, limit=3)] == [6, 7, 8]
        assert await store.read_log(space, "another") == ()

    async def test_a_hash_chain_can_be_stored_by_many_writers(self, store: Store, space: str) -> None:
        async def write(line: bytes) -> None:
            while True:
                tail = (*(await store.read_log(space, "chain")), None)[-2:][0]
                before = b"" if tail is None else tail.payload[:32]
                seq = 0 if tail is None else tail.seq
                if await store.append(space, "chain", sha256(before + line).digest() + line, after=seq):
                    return

        await asyncio.gather(*(write(b"line %d" % i) for i in range(5)))
        digest = b""
        for entry in await store.read_log(space, "chain"):
            digest = sha256(digest + entry.payload[32:]).digest()
            assert entry.payload[:32] == digest
        assert len(await store.read_log(space, "chain")) == 5


class TestMeters:
    async def test_units_are_drawn_until_none_are_left(self, store: Store, space: str) -> None:
        first = (await one(store, space, Draw(MINUTE, 60, 1))).grants[0]
        assert (first.units, first.remaining) == (60, 40)
        assert 0 < first.usable_s <= 1.0
        assert 59 < first.reset_s <= 62
        second = (await one(store, space, Draw(MINUTE, 60, 1))).grants[0]
        assert (second.units, second.remaining) == (40, 0)
        third = (await one(store, space, Draw(MINUTE, 60, 1))).grants[0]
        assert (third.units, third.remaining) == (0, 0)
        assert 58 < third.wait_s <= 62

    async def test_units_may_be_stored_for_longer_and_then_count_for_longer(self, store: Store, space: str) -> None:
        grant = (await one(store, space, Draw(MINUTE, 60, 1, MAX_AHEAD))).grants[0]
        assert 8.0 < grant.usable_s <= 8.5
        assert 68 < grant.reset_s <= 70

    async def test_fewer_units_than_are_of_use_are_not_granted(self, store: Store, space: str) -> None:
        await one(store, space, Draw(MINUTE, 95, 95))
        grant = (await one(store, space, Draw(MINUTE, 10, 10))).grants[0]
        assert (grant.units, grant.remaining) == (0, 5)
        never = (await one(store, space, Draw(MINUTE, 0, 101))).grants[0]
        assert (never.units, never.wait_s) == (0, NEVER_S)

    async def test_units_given_back_can_be_drawn_again_in_the_same_step(self, store: Store, space: str) -> None:
        bucket = (await one(store, space, Draw(MINUTE, 100, 1))).grants[0].bucket
        again = (await one(store, space, Draw(MINUTE, 30, 30, returns=((bucket, 30),)))).grants[0]
        assert (again.units, again.remaining) == (30, 0)

    async def test_no_more_is_freed_than_was_drawn(self, store: Store, space: str) -> None:
        bucket = (await one(store, space, Draw(MINUTE, 10, 1))).grants[0].bucket
        after = (await one(store, space, Draw(MINUTE, returns=((bucket, 500), (bucket - 3, 500))))).grants[0]
        assert after.remaining == 100

    async def test_units_used_beyond_what_was_drawn_are_charged(self, store: Store, space: str) -> None:
        late = (await one(store, space, Draw(MINUTE, returns=((1 << 52, -120),)))).grants[0]
        assert late.remaining == -20
        assert (await one(store, space, Draw(MINUTE, 1, 1))).grants[0].units == 0

    async def test_a_calendar_period_counts_beyond_what_32_bits_hold(self, store: Store, space: str) -> None:
        grant = (await one(store, space, Draw(DAY, 9_999_999_999, 1))).grants[0]
        assert (grant.units, grant.remaining) == (9_999_999_999, 1)
        assert 0 < grant.reset_s <= 86_400
        assert (await one(store, space, Draw(DAY, 5, 2))).grants[0].units == 0
        back = (await one(store, space, Draw(DAY, returns=((grant.bucket, 9_000_000_000),)))).grants[0]
        assert back.remaining == 9_000_000_001

    async def test_several_meters_move_in_one_step(self, store: Store, space: str) -> None:
        got = await store.exchange(space, "a", [Draw(MINUTE, 3, 1), Draw(DAY, 500, 500)])
        assert [grant.units for grant in got.grants] == [3, 500]

    async def test_many_who_draw_at_once_get_the_limit_and_not_one_more(self, store: Store, space: str) -> None:
        async def hammer(holder: str) -> int:
            got = 0
            for _ in range(40):
                units = (await one(store, space, Draw(MINUTE, 2, 1), holder)).grants[0].units
                got += units
            return got

        assert sum(await asyncio.gather(*(hammer(f"h{i}") for i in range(5)))) == 100

    async def test_every_store_reckons_alike(self, store: Store, space: str) -> None:
        rng = random.Random(7)
        meters = [Meter("m", Period.MINUTE, 500), Meter("d", Period.DAY, 3_000), Meter("o", Period.MONTH, 9_000)]
        counts: dict[str, dict[int, int]] = {meter.name: {} for meter in meters}
        for _ in range(60):
            requests = [
                Draw(
                    meter,
                    rng.randrange(60),
                    rng.choice((0, 1, 20)),
                    rng.choice((1, 1, 5, MAX_AHEAD)),
                    tuple((rng.choice([*counts[meter.name], 1 << 52]), rng.randrange(-9, 30)) for _ in range(2)),
                )
                for meter in meters
            ]
            holders = rng.choice(("a", "b", "c"))
            got = await store.exchange(space, holders, requests, Hold("h", 0, 0, 60.0))
            for request, grant in zip(requests, got.grants, strict=True):
                mine = draw_units(counts[request.meter.name], request, got.at, got.num_holders)
                assert (grant.units, grant.bucket, grant.remaining) == (mine.units, mine.bucket, mine.remaining)
                for theirs, ours in (
                    (grant.usable_s, mine.usable_s),
                    (grant.reset_s, mine.reset_s),
                    (grant.wait_s, mine.wait_s),
                ):
                    assert theirs == pytest.approx(ours, abs=0.002)

    async def test_an_impossible_use_is_counted_as_the_most_that_a_bucket_holds(self, store: Store, space: str) -> None:
        meter = Meter("m", Period.DAY, 1000)
        for _ in range(2):
            got = await store.exchange(space, "a", [Draw(meter, 1, 1, returns=((1 << 52, -(10**30)),))])
            assert (got.grants[0].units, got.grants[0].remaining) == (0, 1000 - MAX_BUCKET_UNITS)

    async def test_a_repeated_exchange_is_done_once(self, store: Store, space: str) -> None:
        meter, hold = Meter("m", Period.MINUTE, 100), Hold("h", 10, 3, 60.0)
        draws = [Draw(meter, 30, returns=((1 << 52, -5),))]
        first = await store.exchange(space, "a", draws, hold, number=1)
        again = await store.exchange(space, "a", draws, hold, number=1)
        assert again == first
        assert first.grants[0].remaining == 65
        other = await store.exchange(space, "b", draws, hold, number=1)
        assert other.grants[0].remaining < 65  # every holder has numbers of its own
        following = await store.exchange(space, "a", [Draw(meter, 10)], hold, number=2)
        assert following.grants[0].remaining < other.grants[0].remaining
        late = await store.exchange(space, "a", draws, hold, number=1)  # its first delivery may come after the next one
        assert late == following
        after = await store.exchange(space, "a", [Draw(meter, 0)], hold, number=3)
        assert after.grants[0].remaining == following.grants[0].remaining
        assert await store.keys(space) == ()


class TestHolds:
    async def test_holders_share_a_limit(self, store: Store, space: str) -> None:
        async def hold(holder: str, units: int, spare: int = 0) -> tuple[int, int]:
            got = await store.exchange(space, holder, [], Hold("h", 10, units, 60.0, spare))
            return got.held, got.num_holders

        assert await hold("a", 4) == (4, 1)
        assert await hold("b", 20) == (6, 2)
        assert await hold("c", 1) == (0, 3)
        assert await hold("b", 2) == (2, 3)
        assert await hold("c", 1, spare=100) == (1, 3)  # of the three left a sixth is none
        assert await hold("a", 0) == (0, 3)
        assert await hold("c", 1, spare=100) == (2, 3)  # of the seven left a sixth is one

    async def test_a_holder_alone_may_have_all_spare_units(self, store: Store, space: str) -> None:
        got = await store.exchange(space, "a", [], Hold("h", 10, 2, 60.0, 5))
        assert got.held == 7

    async def test_what_a_dead_holder_had_is_free_after_its_time(self, store: Store, space: str) -> None:
        await store.exchange(space, "dead", [], Hold("h", 3, 3, 0.08))
        assert (await store.exchange(space, "b", [], Hold("h", 3, 1, 60.0))).held == 0
        await asyncio.sleep(0.12)
        got = await store.exchange(space, "b", [], Hold("h", 3, 3, 60.0))
        assert (got.held, got.num_holders) == (3, 1)

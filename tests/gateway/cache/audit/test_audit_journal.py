"""Audits survive the process that made them, and processes that share a store act on each other's."""

from __future__ import annotations

import msgspec
import pytest

from gateway.cache.audit.audit_journal import SPACE, AuditJournal
from gateway.cache.audit.audit_record import AuditRecord, encode_record
from gateway.cache.audit.audit_registry import AuditRegistry
from gateway.cache.audit.error_budget import CLOSED
from gateway.cache.audit.evidence import BUCKET_S
from gateway.cache.audit.route_stats import RouteStatsTable, TenantRoute
from gateway.store.base import Store
from tests.gateway.cache.word_encoder import NearMatchModel

MINE = TenantRoute("acme", "faq")


def record(number: int, *, verdict: str = "wrong", exact: bytes = b"e") -> AuditRecord:
    return AuditRecord(
        id=f"req_{number}",
        at=1000.0,
        tenant="acme",
        route="faq",
        exact=exact,
        entry_id="req_0",
        similarity=0.93,
        runner_up=None,
        match_probability=0.97,
        shipped_probability=0.97,
        weight=2.0,
        verdict=verdict,  # type: ignore[arg-type]
        by="words",
        was_served=True,
    )


class Process:
    """What one gateway process knows."""

    def __init__(self, store: Store, name: str) -> None:
        self.now = 1000.0
        self.route_stats = RouteStatsTable(NearMatchModel())
        self.audits = AuditRegistry(
            self.route_stats,
            bound_of=lambda route: 0.01,
            on_level=lambda whose, stats: self.journal.note_level(whose, stats),
        )
        self.journal = AuditJournal(store, self.audits, self.route_stats, holder=name, wall=lambda: self.now)

    def add(self, record: AuditRecord) -> None:
        self.audits.add(record, self.now)
        self.journal.record(record)

    async def announce(self) -> None:
        self.journal.count_traffic()
        await self.journal.flush()


async def test_what_one_process_found_another_one_knows_after_its_death(store: Store) -> None:
    first = Process(store, "a")
    stats = first.route_stats.of(MINE)
    for _ in range(10):
        stats.evidence.note_request(first.now)
    stats.evidence.note_hit(first.now)
    for number in range(3):
        first.add(record(number))
    await first.announce()
    assert stats.level == 2, "two steps: the first wrong answer may be chance"

    second = Process(store, "b")
    await second.journal.follow()
    known = second.route_stats.of(MINE)
    assert known.level == 2
    assert known.evidence.served() == stats.evidence.served()
    assert [found.id for found in second.audits] == ["req_2", "req_1", "req_0"]
    assert second.audits.is_barred(b"e")
    track = second.audits.track_of(b"e")
    assert track is not None
    assert (track.num_right, track.num_wrong) == (0.0, 6.0)


async def test_processes_act_on_each_others_audits_and_count_each_others_requests(store: Store) -> None:
    one, other = Process(store, "a"), Process(store, "b")
    await one.journal.follow()
    await other.journal.follow()
    for process in (one, other):
        for _ in range(50):
            process.route_stats.of(MINE).evidence.note_request(process.now)
        process.route_stats.of(MINE).evidence.note_hit(process.now)
    for number in range(2):
        one.add(record(number))
    await one.announce()
    await other.announce()
    await other.journal.follow()
    await one.journal.follow()

    for process in (one, other):
        found = process.route_stats.of(MINE).evidence.served()
        assert (found.num_requests, found.num_hits, found.num_wrong) == (100, 2, 2)
        assert process.route_stats.of(MINE).level == 1


async def test_a_review_reaches_everybody_and_lifts_what_followed(store: Store) -> None:
    one, other = Process(store, "a"), Process(store, "b")
    await other.journal.follow()
    one.add(record(1))
    await one.announce()
    await other.journal.follow()
    assert other.audits.is_barred(b"e")
    one.add(record(1, verdict="right"))
    await one.announce()
    await other.journal.follow()
    assert not other.audits.is_barred(b"e")
    assert other.route_stats.of(MINE).evidence.served().num_wrong == 0


async def test_damaged_records_are_thrown_out_and_hurt_nobody(store: Store) -> None:
    whole = encode_record(record(1))
    await store.put(SPACE, "a.req_1", whole[:-1] + bytes([whole[-1] ^ 1]))
    await store.put(SPACE, "s.acme/faq", b"nonsense")
    await store.put(SPACE, "n.x.notanumber", b"")
    process = Process(store, "a")
    await process.journal.follow()
    assert len(process.audits) == 0
    assert await store.keys(SPACE) == ()


async def test_requests_are_counted_in_spans_and_only_news_is_written(store: Store) -> None:
    process = Process(store, "a")
    process.route_stats.of(MINE).evidence.note_request(process.now)
    await process.announce()
    version = (await store.changes(SPACE)).cursor
    await process.announce()
    assert (await store.changes(SPACE)).cursor == version
    process.now += BUCKET_S
    process.route_stats.of(MINE).evidence.note_request(process.now)
    await process.announce()
    assert len(await store.keys(SPACE)) == 2


def test_closed_is_above_every_level_that_serves() -> None:
    assert CLOSED > 1


async def test_one_tenants_flood_displaces_no_audit_of_another(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cache.audit.audit_journal.MAX_WAITING", 50)
    monkeypatch.setattr("gateway.cache.audit.audit_registry.MAX_RECORDS", 50)
    one, other = Process(store, "a"), Process(store, "b")
    calm = msgspec.structs.replace(record(0), tenant="calm", exact=b"calm")
    for audit in (calm, *(record(number) for number in range(1, 201))):
        one.audits.add(audit, one.now)
        one.journal.record(audit)
    assert one.audits.get("req_0") == calm
    assert one.audits.is_barred(b"calm") == (calm.verdict == "wrong")
    assert (len(one.audits), one.audits.get("req_1")) == (50, None)
    await one.journal.flush()
    await other.journal.follow()
    assert other.audits.get("req_0") == calm

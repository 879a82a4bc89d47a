"""Traffic of the last day over all replicas, and the part of it that a change reaches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.policies.last_day import LastDay
from gateway.store.base import Store
from gateway.store.embedded import EmbeddedStore
from gateway.telemetry.records.recent import HOUR_S, HOURS, RouteTraffic
from gateway.telemetry.records.record import RequestRecord
from routing_policies.blast import BlastRadius
from tests.gateway.policies.replica import Lost

SHOP = BlastRadius(tenants=("shop",), routes=("faq",))


class Process:
    """One replica with its own counts."""

    def __init__(self, store: Store, name: str) -> None:
        self.now = 1_000_000 * HOUR_S
        self.traffic = RouteTraffic(lambda: self.now)
        self.last_day = LastDay(self.traffic, store, holder=name, wall=lambda: self.now)

    def serve(self, tenant: str, route: str, num: int) -> None:
        for _ in range(num):
            record = RequestRecord("req_1", 0.0)
            record.tenant, record.route = tenant, route
            self.traffic.note(record)


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Store]:
    opened = EmbeddedStore(tmp_path / "shared.sqlite3", wall=lambda: 1000.0)
    yield opened
    await opened.aclose()


async def test_counts_of_all_replicas_add_up_and_each_counts_once(shared: Store) -> None:
    one, other = Process(shared, "a"), Process(shared, "b")
    one.serve("shop", "faq", 3)
    other.serve("shop", "faq", 4)
    other.serve("lab", "main", 5)
    for process in (one, other, one):
        await process.last_day.publish()
    for process in (one, other):
        assert await process.last_day.sums() == {("shop", "faq"): 7, ("lab", "main"): 5}


async def test_a_process_that_has_ended_still_counts(shared: Store) -> None:
    ended = Process(shared, "a")
    ended.serve("shop", "faq", 3)
    await ended.last_day.publish()
    assert await Process(shared, "b").last_day.sums() == {("shop", "faq"): 3}


async def test_a_change_reaches_its_share_and_nothing_is_known_without_traffic(shared: Store) -> None:
    process = Process(shared, "a")
    nothing = await process.last_day.reach(SHOP)
    assert (nothing.share_of_last_day, nothing.requests_last_day, nothing.known_for_s) == (None, 0, 0.0)
    process.serve("shop", "faq", 1)
    process.serve("lab", "main", 3)
    found = await process.last_day.reach(SHOP)
    assert (found.share_of_last_day, found.requests_last_day, found.known_for_s) == (0.25, 4, 0.0)


async def test_a_reach_names_the_time_in_which_requests_were_counted(shared: Store) -> None:
    process = Process(shared, "a")
    process.now += 0.75 * HOUR_S
    process.traffic = process.last_day._traffic = RouteTraffic(lambda: process.now)
    process.now += 30.0
    process.serve("shop", "faq", 1)
    process.now += 60.0
    assert (await process.last_day.reach(SHOP)).known_for_s == 90.0
    process.now += HOUR_S
    process.traffic.begin_hour()
    process.serve("shop", "faq", 1)
    assert (await process.last_day.reach(SHOP)).known_for_s == HOUR_S + 90.0
    process.now += HOURS * HOUR_S - 60.0
    assert (await process.last_day.reach(SHOP)).known_for_s == 0.0


async def test_a_day_later_nothing_of_it_counts(shared: Store) -> None:
    process = Process(shared, "a")
    process.serve("shop", "faq", 3)
    process.now += HOURS * HOUR_S
    assert await process.last_day.sums() == {}


async def test_without_the_store_its_own_counts_are_reported(tmp_path: Path) -> None:
    process = Process(Lost(tmp_path / "none.sqlite3", wall=lambda: 0.0), "a")
    process.serve("shop", "faq", 3)
    assert await process.last_day.sums() == {("shop", "faq"): 3}

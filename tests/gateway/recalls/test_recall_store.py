"""RecallStore over each kind of store: one notice for each request, whatever overlaps, is repeated or breaks off."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from gateway.recalls.notice import ReceivedAnswer, WrongAnswer, notice_of, recall_id
from gateway.recalls.recall_store import LATE_S, DeliveryState, RecallStore
from gateway.store.base import Store

NOW = 1_000_000.0
DAY_S = 86_400.0


def stores(store: Store, count: int = 1, *, now: float = NOW, max_answers: int = 1000) -> list[RecallStore]:
    """Several processes' views of one store."""
    return [RecallStore(store, retention_s=DAY_S, max_answers=max_answers, wall=lambda: now) for _ in range(count)]


def received(request: str, entry: str = "req_e", *, tenant: str = "shop", at: float = NOW) -> ReceivedAnswer:
    return ReceivedAnswer(
        tenant=tenant, request_id=request, entry_id=entry, entry_tenant="shop", route="faq", served_at=at
    )


def finding(request: str = "req_1", entry: str = "req_e", *, at: float = NOW, tenant: str = "shop") -> WrongAnswer:
    return WrongAnswer(entry_id=entry, reason="audit", at=at, tenant=tenant, request_id=request, route="faq")


async def find_wrong(store: RecallStore, wrong: WrongAnswer, tenant: str = "shop") -> list[str]:
    """The requests that got a notice by this call."""
    await store.begin(tenant, wrong)
    return [notice.request_id for notice in await store.settle(tenant, wrong)]


async def serve(store: RecallStore, answer: ReceivedAnswer) -> list[str]:
    """The requests that got a notice because their entry is wrong by now."""
    wrong = await store.add_answer(answer)
    return [] if wrong is None else [notice.request_id for notice in await store.settle(answer.tenant, wrong)]


async def test_all_receivers_of_an_entry_get_a_notice_and_no_others(store: Store) -> None:
    (recalls,) = stores(store)
    for number in (1, 2):
        assert await serve(recalls, received(f"req_{number}")) == []
    assert await serve(recalls, received("req_3", "req_other")) == []
    assert await find_wrong(recalls, finding("req_2")) == ["req_1", "req_2"]
    first, second = await recalls.notices("shop")
    assert (first.id, first.entry, first.reason, first.basis) == (recall_id("req_1"), "req_e", "audit", "entry")
    assert (second.request_id, second.basis, second.recalled_at) == ("req_2", "response", NOW)
    assert first.position < second.position
    assert await recalls.notices("other") == ()


async def test_a_second_finding_adds_nothing(store: Store) -> None:
    one, other = stores(store, 2)
    await serve(one, received("req_1"))
    assert await find_wrong(one, finding()) == ["req_1"]
    again = msgspec.structs.replace(finding(), reason="feedback", at=NOW + 5.0)
    assert await find_wrong(other, again) == []
    assert await serve(other, received("req_1")) == [], "it is written again, because the first time was not confirmed"
    assert [notice.reason for notice in await other.notices("shop")] == ["audit"]


async def test_an_answer_written_after_the_finding_gets_its_notice(store: Store) -> None:
    one, other = stores(store, 2)
    assert await find_wrong(one, finding("req_0")) == []
    assert await serve(other, received("req_1", at=NOW + LATE_S)) == ["req_1"]
    assert await serve(other, received("req_2", at=NOW + LATE_S + 1.0)) == [], "a review let the entry be served again"
    assert await find_wrong(one, finding("req_3", at=NOW + 500.0)) == ["req_2"]


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_overlaps_each_request_gets_one_notice(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    views = stores(store, 3)
    work = [serve(rng.choice(views), received(f"req_{number}")) for number in range(40)]
    work += [find_wrong(rng.choice(views), finding(f"req_{number}")) for number in range(6)]
    rng.shuffle(work)
    added = [request for part in await asyncio.gather(*work) for request in part]
    assert sorted(added) == sorted(f"req_{number}" for number in range(40)), "each by exactly one process"
    notices = await views[0].notices("shop")
    assert sorted(notice.request_id for notice in notices) == sorted(added)
    positions = [notice.position for notice in notices]
    assert positions == sorted(set(positions))


async def test_another_process_finishes_what_a_lost_one_began(store: Store) -> None:
    one, other = stores(store, 2)
    await serve(one, received("req_1"))
    await one.begin("shop", finding())
    (wrong,) = await other.open_findings("shop")
    assert wrong == finding()
    assert [notice.request_id for notice in await other.settle("shop", wrong)] == ["req_1"]
    await other.close("shop", wrong)
    assert await one.open_findings("shop") == []


async def test_a_notice_that_is_there_is_not_added_where_its_process_was_lost_before_it_could_mark_that(
    store: Store,
) -> None:
    one, other = stores(store, 2)
    await serve(one, received("req_1"))
    await one._append("shop", finding(), [received("req_1")])
    assert await find_wrong(other, finding()) == []
    assert len(await other.notices("shop")) == 1
    known = await other.find_answer("shop", "req_1")
    assert known is not None
    assert known.is_recalled


async def test_the_oldest_receivers_beyond_the_bound_are_forgotten(store: Store) -> None:
    (recalls,) = stores(store, max_answers=3)
    for number in range(5):
        await serve(recalls, received(f"req_{9 - number}", at=NOW + number))
    assert await recalls.trim("shop") == 2
    assert await recalls.trim("shop") == 0
    assert await recalls.find_answer("shop", "req_9") is None
    assert await find_wrong(recalls, finding(at=NOW)) == ["req_7", "req_6", "req_5"]


async def test_notices_are_bounded_in_number_and_time(store: Store) -> None:
    (recalls,) = stores(store, max_answers=3)
    for number in range(5):
        await serve(recalls, received(f"req_{number}", at=NOW + number))
    await find_wrong(recalls, finding())
    assert [notice.request_id for notice in await recalls.notices("shop")] == ["req_2", "req_3", "req_4"]
    (later,) = stores(store, now=NOW + DAY_S)
    assert await later.notices("shop") == ()


async def test_positions_grow_although_the_store_lost_the_notices(store: Store) -> None:
    (before,) = stores(store)
    await serve(before, received("req_1"))
    await find_wrong(before, finding())
    (old,) = await before.notices("shop")
    assert await store.delete("recalls.notices.shop", "notices")
    (after,) = stores(store, now=NOW + 1.0)
    await serve(after, received("req_2"))
    await find_wrong(after, finding())
    (new,) = await after.notices("shop")
    assert new.position > old.position


async def test_another_tenants_entry_has_a_name_that_is_not_its_request(store: Store) -> None:
    (recalls,) = stores(store)
    for request in ("req_1", "req_2"):
        await serve(recalls, received(request, tenant="guest"))
    await find_wrong(recalls, finding(), "guest")
    first, second = await recalls.notices("guest")
    assert first.entry == second.entry
    assert first.entry.startswith("shared_")
    assert "req_e" not in first.entry


def test_new_notices_go_before_failed_ones() -> None:
    state = DeliveryState()
    notices = [notice_of(received(f"req_{number}"), finding(), number) for number in (1, 2, 3)]
    state = state.after(notices[0], is_open=True).after(notices[1], is_open=True).after(notices[0], is_open=True)
    assert [notice.position for notice in state.waiting(notices)] == [3, 2, 1]
    state = state.after(notices[2], is_open=False).after(notices[1], is_open=False)
    assert [notice.position for notice in state.waiting(notices)] == [1]
    assert state.waiting(notices[1:]) == [], "the first is past its time"

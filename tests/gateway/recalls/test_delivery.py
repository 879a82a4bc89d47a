"""RecallDelivery: each notice reaches its receiver, once in a normal run, over failures, restarts and replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.recalls.delivery import FIRST_PAUSE_S, LONGEST_PAUSE_S, DeliveryRules, RecallDelivery
from gateway.recalls.notice import RecallNotice, ReceivedAnswer, WrongAnswer
from gateway.recalls.recall_store import LATE_S, RecallStore
from gateway.recalls.recalls import Recalls, RecallSink
from gateway.recalls.store_lease import LEASE_S, TRY_S, StoreLease
from gateway.recalls.webhook import RecallWebhook
from gateway.store.base import Store
from gateway.upstreams.http1.target import Target

NOW = 1_000_000.0
GIVE_UP_S = 3600.0
HOOK = RecallWebhook(tenant="dev", target=Target.parse("https://shop.example.com/hook"), path="/hook", secret=b"x" * 32)


class Receivers:
    """Time and receivers that all processes share in these tests."""

    def __init__(self) -> None:
        self.now = NOW
        self.refused: set[str] = set()
        self.is_down = False
        self.attempts: list[str] = []
        self.taken: list[str] = []
        self.ends: list[str] = []

    def __call__(self) -> float:
        return self.now

    async def post(self, webhook: RecallWebhook, notice: RecallNotice) -> str | None:
        self.attempts.append(notice.request_id)
        if self.is_down or notice.request_id in self.refused:
            return "status 503"
        self.taken.append(notice.request_id)
        return None

    def note_end(self, notice: RecallNotice, tenant: str, end: str, failure: str) -> None:
        self.ends.append(end)


class Process:
    """One gateway's part."""

    def __init__(
        self, store: Store, receivers: Receivers, name: str = "one", *, tenants: Sequence[str] = ("dev",)
    ) -> None:
        self.store = RecallStore(store, retention_s=86_400.0, max_answers=1000, wall=receivers)
        sink = RecallSink(count_receiver=lambda end: None, recalled=lambda tenant, notice: None)
        self.recalls = Recalls(self.store, max_answers=1000, sink=sink)
        self.delivery = RecallDelivery(
            self.recalls,
            self.store,
            StoreLease(store, "recalls", holder=name, clock=receivers),
            DeliveryRules(
                post=receivers.post,
                webhooks=lambda: {tenant: replace(HOOK, tenant=tenant) for tenant in tenants},
                give_up_s=GIVE_UP_S,
                note_end=receivers.note_end,
            ),
            clock=receivers,
            wall=receivers,
        )
        self._receivers = receivers

    async def recall(self, *requests: str, tenant: str = "dev") -> None:
        """Each was served an entry of its own that proved wrong."""
        for request in requests:
            now = self._receivers.now
            entry = f"of_{request}"
            answer = ReceivedAnswer(
                tenant=tenant, request_id=request, entry_id=entry, entry_tenant=tenant, route="faq", served_at=now
            )
            self.recalls.note_served(answer)
            self.recalls.note_wrong(wrong_of(answer))
        await self.recalls.write_pending()


def wrong_of(answer: ReceivedAnswer) -> WrongAnswer:
    return WrongAnswer(
        entry_id=answer.entry_id,
        reason="audit",
        at=answer.served_at,
        tenant=answer.tenant,
        request_id=answer.request_id,
        route=answer.route,
    )


@pytest.fixture
def receivers() -> Receivers:
    return Receivers()


async def test_notices_are_sent_in_order_and_once(store: Store, receivers: Receivers) -> None:
    process = Process(store, receivers)
    await process.recall("req_1", "req_2")
    for _ in range(3):
        await process.delivery.step()
    await process.recall("req_3")
    await process.delivery.step()
    assert receivers.attempts == receivers.taken == ["req_1", "req_2", "req_3"]
    assert receivers.ends == ["delivered"] * 3


async def test_a_restart_between_finding_and_delivery_loses_and_repeats_nothing(
    store: Store, receivers: Receivers
) -> None:
    first = Process(store, receivers)
    await first.recall("req_1", "req_2")
    await first.delivery.step()
    await first.recall("req_3")
    await first.delivery.aclose()
    second = Process(store, receivers, "two")
    await second.delivery.step()
    assert receivers.attempts == ["req_1", "req_2", "req_3"]


async def test_pauses_double_while_a_receiver_fails_and_then_all_is_sent(store: Store, receivers: Receivers) -> None:
    process = Process(store, receivers)
    await process.recall("req_1", "req_2", "req_3")
    receivers.is_down = True
    attempted_at = []
    for _ in range(80):
        before = len(receivers.attempts)
        await process.delivery.step()
        if len(receivers.attempts) > before:
            attempted_at.append(receivers.now - NOW)
        receivers.now += FIRST_PAUSE_S / 2.0
    assert attempted_at == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]
    receivers.is_down = False
    receivers.now += LONGEST_PAUSE_S
    await process.delivery.step()
    assert sorted(receivers.taken) == ["req_1", "req_2", "req_3"]
    before = len(receivers.attempts)
    receivers.now += LONGEST_PAUSE_S
    await process.delivery.step()
    assert len(receivers.attempts) == before


async def test_a_notice_that_is_never_taken_holds_no_other_back_and_is_given_up(
    store: Store, receivers: Receivers
) -> None:
    process = Process(store, receivers)
    receivers.refused = {"req_1"}
    await process.recall("req_1", "req_2")
    while receivers.now < NOW + 2.0 * GIVE_UP_S:
        await process.delivery.step()
        receivers.now += 5.0
    await process.recall("req_3")
    await process.delivery.step()
    assert receivers.taken == ["req_2", "req_3"]
    assert receivers.ends[-2:] == ["given_up", "delivered"]
    assert receivers.ends.count("given_up") == 1
    assert [notice.request_id for notice in await process.store.notices("dev")] == ["req_1", "req_2", "req_3"]


async def test_one_process_of_several_sends_and_another_follows_it(store: Store, receivers: Receivers) -> None:
    one, other = Process(store, receivers), Process(store, receivers, "two")
    await one.recall("req_1")
    await asyncio.gather(one.delivery.step(), other.delivery.step())
    await other.recall("req_2")
    await asyncio.gather(one.delivery.step(), other.delivery.step())
    assert receivers.attempts == ["req_1", "req_2"]
    await one.delivery.aclose()
    receivers.now += TRY_S
    await other.recall("req_3")
    await one.delivery.step()
    await other.delivery.step()
    assert receivers.attempts == ["req_1", "req_2", "req_3"]


async def test_a_process_that_stalled_while_it_sent_does_not_undo_what_another_one_did(
    store: Store, receivers: Receivers
) -> None:
    one, other = Process(store, receivers), Process(store, receivers, "two")
    await one.recall("req_1", "req_2")
    take = receivers.post

    async def stalls(webhook: RecallWebhook, notice: RecallNotice) -> str | None:
        """The other one goes on meanwhile, as after this one's time."""
        receivers.post = take  # type: ignore[method-assign]
        one.delivery._rules = other.delivery._rules
        assert await store.delete("recalls", "lease")
        receivers.now += LEASE_S
        await other.delivery.step()
        return await take(webhook, notice)

    one.delivery._rules = DeliveryRules(
        post=stalls, webhooks=lambda: {"dev": HOOK}, give_up_s=GIVE_UP_S, note_end=receivers.note_end
    )
    await one.delivery.step()
    await one.delivery.step()
    await other.delivery.step()
    assert receivers.attempts == ["req_1", "req_2", "req_1"], "repeated by the stalled one alone, with its id"
    assert receivers.ends == ["delivered", "delivered"]


async def test_what_a_lost_process_left_is_finished_and_sent(store: Store, receivers: Receivers) -> None:
    lost, other = Process(store, receivers), Process(store, receivers, "two")
    answer = ReceivedAnswer(
        tenant="dev", request_id="req_1", entry_id="req_e", entry_tenant="dev", route="faq", served_at=NOW
    )
    lost.recalls.note_served(answer)
    await lost.recalls.write_pending()
    await lost.store.begin("dev", wrong_of(answer))  # and no further
    await other.delivery.step()
    assert receivers.taken == ["req_1"]
    assert await other.store.open_findings("dev") != [], "an answer may still be on its way to the store"
    receivers.now += LATE_S + 1.0
    await other.delivery.step()
    assert await other.store.open_findings("dev") == []


async def test_receivers_that_hang_delay_no_other_tenant(store: Store, receivers: Receivers) -> None:
    tenants = [f"t{number}" for number in range(6)]
    process = Process(store, receivers, tenants=tenants)
    may_end, is_taken, post = asyncio.Event(), asyncio.Event(), receivers.post

    async def hang(webhook: RecallWebhook, notice: RecallNotice) -> str | None:
        if webhook.tenant != tenants[-1]:
            await may_end.wait()
            return "timed out"
        is_taken.set()
        return await post(webhook, notice)

    process.delivery._rules = replace(process.delivery._rules, post=hang)
    for tenant in tenants:
        await process.recall(f"req_{tenant}", tenant=tenant)
    process.recalls.is_wanted.set()
    running = asyncio.create_task(process.delivery.run())
    await asyncio.wait_for(is_taken.wait(), 5)
    is_taken.clear()
    await process.recall("req_later", tenant=tenants[-1])
    process.delivery.wake()
    await asyncio.wait_for(is_taken.wait(), 5)
    assert receivers.taken == ["req_t5", "req_later"]
    may_end.set()
    await process.delivery.aclose()
    await running
    assert receivers.ends.count("failed") == 5


async def test_every_tenant_has_its_turn_where_there_are_more_than_begin_at_once(
    store: Store, receivers: Receivers
) -> None:
    tenants = [f"t{number:02}" for number in range(40)]
    process = Process(store, receivers, tenants=tenants)
    for tenant in tenants:
        await process.recall(f"req_{tenant}", tenant=tenant)
    for _ in range(3):
        await process.delivery.step()
        receivers.now += 1.0
    assert sorted(receivers.taken) == [f"req_{tenant}" for tenant in tenants]


async def test_closing_waits_for_the_attempt_under_way(store: Store, receivers: Receivers) -> None:
    process = Process(store, receivers)
    await process.recall("req_1", "req_2")
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(webhook: RecallWebhook, notice: RecallNotice) -> str | None:
        has_begun.set()
        await may_end.wait()
        return await receivers.post(webhook, notice)

    process.delivery._rules = DeliveryRules(
        post=slow, webhooks=lambda: {"dev": HOOK}, give_up_s=GIVE_UP_S, note_end=receivers.note_end
    )
    process.recalls.is_wanted.set()
    running = asyncio.create_task(process.delivery.run())
    await has_begun.wait()
    closing = asyncio.create_task(process.delivery.aclose())
    await asyncio.sleep(0)
    assert not closing.done()
    may_end.set()
    await closing
    await running
    assert receivers.taken == ["req_1"], "the next one is left for another process"
    after = Process(store, receivers, "two")
    await after.delivery.step()
    assert receivers.attempts == ["req_1", "req_2"]

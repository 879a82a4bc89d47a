"""Recalls: what the request path notes is written once, whatever the store does meanwhile."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from gateway.recalls.notice import ReceivedAnswer, WrongAnswer
from gateway.recalls.recall_store import RecallStore
from gateway.recalls.recalls import MAX_WAITING, Recalls, RecallSink
from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.forwarding import OuterStore
from routing_policies.policy.document import Policy

NOW = 1_000_000.0
POLICY = {
    "schema_version": 1,
    "deployments": [{"id": "small", "url": "http://127.0.0.1:1", "model": "m"}],
    "tenants": [{"id": "shop"}, {"id": "guest"}],
    "routes": [
        {"id": "faq", "select": {"candidates": ["small"]}},
        {
            "id": "open",
            "select": {"candidates": ["small"]},
            "cache": {"mode": "exact_then_semantic", "scope": "shared"},
        },
    ],
}


class FailingStore(OuterStore):
    """A store that fails at random, half the time after it has done what it reports as failed."""

    def __init__(self, store: Store, rng: random.Random, ratio: float) -> None:
        super().__init__(store)
        self.ratio = ratio
        self._rng = rng

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        draw = self._rng.random()
        if draw < self.ratio / 2.0:
            raise StoreUnavailable(StoreLoss.DOWN, "before it was done")
        result = await super()._forward(operation, *arguments, **options)
        if draw < self.ratio:
            raise StoreUnavailable(StoreLoss.SLOW, "after it was done")
        return result


class Noted:
    """Ends and notices that a process counted."""

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.recalled: list[tuple[str, str]] = []

    @property
    def sink(self) -> RecallSink:
        return RecallSink(
            count_receiver=self.ends.append,
            recalled=lambda tenant, notice: self.recalled.append((tenant, notice.request_id)),
        )


def process(store: Store, noted: Noted, *, max_answers: int = 1000) -> Recalls:
    recall_store = RecallStore(store, retention_s=86_400.0, max_answers=max_answers, wall=lambda: NOW)
    recalls = Recalls(recall_store, max_answers=max_answers, sink=noted.sink)
    recalls.configure(msgspec.convert(POLICY, Policy))
    return recalls


def received(request: str, entry: str = "req_e", tenant: str = "shop", route: str = "faq") -> ReceivedAnswer:
    return ReceivedAnswer(
        tenant=tenant, request_id=request, entry_id=entry, entry_tenant="shop", route=route, served_at=NOW
    )


def wrong(answer: ReceivedAnswer, reason: Any = "audit") -> WrongAnswer:
    return WrongAnswer(
        entry_id=answer.entry_id,
        reason=reason,
        at=NOW,
        tenant=answer.tenant,
        request_id=answer.request_id,
        route=answer.route,
    )


@pytest.mark.parametrize("seed", range(5))
async def test_each_request_gets_one_notice_over_a_store_that_fails(store: Store, seed: int) -> None:
    rng, noted = random.Random(seed), Noted()
    failing = FailingStore(store, rng, 0.2)
    processes = [process(failing, noted) for _ in range(3)]
    answers = [received(f"req_{number}", f"req_e{number % 7}") for number in range(60)]
    for number, answer in enumerate(answers):
        rng.choice(processes).note_served(answer)
        if number % 3 == 0:
            rng.choice(processes).note_wrong(wrong(answer, rng.choice(("audit", "review", "feedback"))))
        if number % 10 == 9:
            for each in processes:
                with suppress(StoreUnavailable):
                    await each.write_pending()

    async def write(each: Recalls) -> None:
        while len(each._served) + len(each._wrong):
            with suppress(StoreUnavailable):
                await each.write_pending()

    await asyncio.gather(*map(write, processes))
    failing.ratio = 0.0
    reader = RecallStore(store, retention_s=86_400.0, max_answers=1000, wall=lambda: NOW)
    for finding in await reader.open_findings("shop"):  # as the process with the lease does
        await processes[0].settle("shop", finding)
    found = [notice.request_id for notice in await reader.notices("shop")]
    assert sorted(found) == sorted(answer.request_id for answer in answers)
    assert len(noted.recalled) == len(set(noted.recalled)), "no notice is counted twice"


async def test_findings_on_a_shared_route_concern_every_tenant_and_feedback_its_own_alone(store: Store) -> None:
    noted = Noted()
    recalls = process(store, noted)
    for tenant, entry in (("shop", "req_a"), ("guest", "req_a"), ("shop", "req_b"), ("guest", "req_b")):
        recalls.note_served(received(f"req_{tenant}_{entry}", entry, tenant, "open"))
    recalls.note_wrong(wrong(received("req_guest_req_b", "req_b", "guest", "open"), "feedback"))
    await recalls.write_pending()
    assert noted.recalled == [("guest", "req_guest_req_b")]
    recalls.note_wrong(wrong(received("req_guest_req_a", "req_a", "guest", "open")))
    await recalls.write_pending()
    assert sorted(noted.recalled[1:]) == [("guest", "req_guest_req_a"), ("shop", "req_shop_req_a")]


async def test_one_tenants_answer_is_not_another_ones(store: Store) -> None:
    recalls = process(store, Noted())
    answer = received("req_1")
    recalls.note_served(answer)
    for _ in range(2):  # waiting, then stored
        assert await recalls.received("req_1", "shop") == answer
        assert await recalls.received("req_1", "guest") is None
        await recalls.write_pending()
    for nonsense in ("", "req_2", "a\0b", "a.b", "ü", "x" * 129):
        assert await recalls.received(nonsense, "shop") is None


async def test_answers_that_wait_are_bounded_and_the_rest_is_counted(store: Store) -> None:
    noted = Noted()
    recalls = process(store, noted)
    for number in range(MAX_WAITING + 3):
        recalls.note_served(received(f"req_{number}"))
    assert noted.ends == ["dropped"] * 3
    assert await recalls.received("req_2", "shop") is None
    assert await recalls.received("req_3", "shop") is not None


async def test_stored_receivers_are_bounded(store: Store) -> None:
    noted = Noted()
    recalls = process(store, noted, max_answers=100)
    for number in range(230):
        recalls.note_served(msgspec.structs.replace(received(f"req_{number}"), served_at=NOW + number / 1000.0))
    await recalls.write_pending()
    assert noted.ends == ["stored"] * 230
    keys = [key for key in await store.keys("recalls.received.shop", limit=1000) if key.startswith("q.")]
    assert 100 <= len(keys) <= 200, "the bound, and what one process may write before it checks again"
    assert "q.req_229" in keys
    assert "q.req_0" not in keys


async def test_what_waits_is_written_at_the_end(store: Store) -> None:
    noted = Noted()
    recalls = process(store, noted)
    recalls.note_served(received("req_1"))
    recalls.note_wrong(wrong(received("req_1")))
    await recalls.flush()
    assert noted.recalled == [("shop", "req_1")]

"""Recall notices from a served similar answer to `GET /v1/recalls` and the webhook, over real sockets and stores."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.background.test_cache_auditor import Deployment, replies
from tests.gateway.cache.similar_stack import cache_of, question, similar, similar_policy, until
from tests.gateway.recalls.webhook_receiver import WebhookReceiver
from tests.gateway.stack import Reply, Stack, running
from tests.gateway.store.redis_server import RedisServer

STORED = "How do I reset the password of a mailbox?"
NEAR = [f"How do I reset the password of a mailbox {word} please?" for word in ("again", "then", "so", "there")]
SHOP, GUEST = ({"authorization": f"Bearer sk-penstock-{name}"} for name in ("shop", "guest"))
SECRET = "a secret of more than sixteen bytes"
RULE = "ttl_s: 600, audit_ratio: {audit_ratio}, scope: {scope}"


def digest(name: str) -> str:
    return sha256(f"sk-penstock-{name}".encode()).hexdigest()


def policy(folder: Path, receiver: WebhookReceiver | None, *, audit_ratio: float = 0.0, scope: str = "tenant") -> str:
    """Two tenants; notices of the first go to a receiver."""
    hook = "" if receiver is None else f', recall_webhook: {{url: "{receiver.url}", secret_env: SHOP_RECALL_SECRET}}'
    return similar_policy(folder, RULE.format(audit_ratio=audit_ratio, scope=scope)) + (
        "tenants:\n"
        f"  - {{id: shop, keys: [{{id: k, sha256: {digest('shop')}}}]{hook}}}\n"
        f"  - {{id: guest, keys: [{{id: k, sha256: {digest('guest')}}}]}}\n"
    )


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_RECALL_SECRET", SECRET)


@asynccontextmanager
async def gateway(
    folder: Path, name: str, url: str = "", receiver: WebhookReceiver | None = None, **rules: Any
) -> AsyncIterator[Stack]:
    """One of several gateways, or with one name the same once more."""
    own = folder / name
    own.mkdir(exist_ok=True)
    settings: dict[str, Any] = {"cache.recalls.allow_private_webhooks": True, "store.timeout_s": 2.0}
    if url:
        settings |= {"store.address": url, "cache.shared": True}
    async with similar(own, policy=policy(own, receiver, **rules), settings=settings) as (stack, _):
        yield stack


async def send(stack: Stack, text: str, who: dict[str, str] = SHOP) -> Reply:
    return await stack.call(question(text), headers=who)


async def store_one(
    stack: Stack, text: str = STORED, who: dict[str, str] = SHOP, *, answer: str = "Press 1.", fresh: str = "Press 1."
) -> Reply:
    """An answer that similar questions find from now on; deployments are slow then, and give audits a fresh one."""
    before = stack.gateway._cache.semantic.num_entries
    stack.small.otherwise = replies(answer)
    reply = await send(stack, text, who)
    assert cache_of(reply) == "miss"
    await until(lambda: stack.gateway._cache.semantic.num_entries > before)
    stack.small.otherwise = Deployment(fresh)
    return reply


async def served(stack: Stack, text: str, who: dict[str, str] = SHOP) -> str:
    """The request id of a similar answer."""
    reply = await send(stack, text, who)
    assert cache_of(reply) == "hit-semantic", text
    return reply.headers["x-request-id"]


async def report_wrong(stack: Stack, request_id: str, who: dict[str, str] = SHOP) -> Reply:
    return await stack.call({"request_id": request_id, "verdict": "wrong"}, path="/v1/feedback", headers=who)


async def recalls(stack: Stack, who: dict[str, str] = SHOP, query: str = "") -> Any:
    reply = await stack.get(f"/v1/recalls{query}", headers=who)
    assert reply.status == 200, reply.body
    return reply.json


async def until_recalled(stack: Stack, count: int, who: dict[str, str] = SHOP) -> list[Any]:
    """Wait for so many notices."""
    async with asyncio.timeout(60.0):
        while len(found := (await recalls(stack, who))["data"]) < count:
            await asyncio.sleep(0.02)
    return list(found)


def draw(stack: Stack, number: float) -> None:
    """From now on every draw gives this number: 0 audits all that may be audited, 1 nothing."""
    stack.gateway._cache.auditor._rng = Fixed(number)


class Fixed(random.Random):
    """A source of one number."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self._number = number

    def random(self) -> float:
        return self._number


async def test_over_two_replicas_each_receiver_gets_one_notice_and_one_webhook(
    tmp_path: Path, redis: RedisServer
) -> None:
    redis.admin.flushall()
    async with (
        WebhookReceiver() as receiver,
        gateway(tmp_path, "a", redis.url, receiver) as one,
        gateway(tmp_path, "b", redis.url, receiver) as other,
    ):
        other.small.otherwise = Deployment("Press 1.")
        first = await store_one(one)
        await until(lambda: other.gateway._cache.semantic.num_entries)
        wanted = [await served(stack, text) for stack, text in zip((one, other, one, other), NEAR, strict=True)]
        exact = await send(other, STORED)
        assert cache_of(exact) == "hit-exact"
        await store_one(other, "How do I knit a scarf?")
        unrelated = await served(other, "How do I knit a scarf please?")

        for stack in (one, other, one):  # the second and the third time change nothing
            assert (await report_wrong(stack, wanted[1])).status == 200
        found = await until_recalled(one, 4)
        await receiver.until(4)
        await until(lambda: not len(one.gateway._recalls.recalls._wrong) + len(other.gateway._recalls.recalls._wrong))

        assert sorted(notice["request_id"] for notice in found) == sorted(wanted)
        assert {notice["request_id"]: notice["basis"] for notice in found}[wanted[1]] == "response"
        assert {notice["entry"] for notice in found} == {first.headers["x-request-id"]}
        assert {notice["reason"] for notice in found} == {"feedback"}
        assert (await recalls(one)) == (await recalls(other)), "in one order"
        assert sorted(receiver.taken) == sorted(wanted)
        assert len({webhook.headers["webhook-id"] for webhook in receiver.received}) == 4
        assert await one.metric("penstock_recalls_total") + await other.metric("penstock_recalls_total") == 4.0
        assert STORED not in str([webhook.body for webhook in receiver.received]) + str(found)
        assert unrelated not in receiver.taken
        for stack in (one, other):
            assert (await recalls(stack, GUEST))["data"] == []
        assert (await report_wrong(other, wanted[0], GUEST)).status == 200, (
            "passed on, in case another replica knows it"
        )
        assert (await recalls(one, GUEST))["data"] == []


async def test_after_a_restart_between_finding_and_delivery_the_webhook_is_sent_once(tmp_path: Path) -> None:
    async with WebhookReceiver() as receiver:
        async with gateway(tmp_path, "a", receiver=receiver) as stack:
            await store_one(stack)
            wanted = await served(stack, NEAR[0])
            receiver.status = "503 Service Unavailable"
            assert (await report_wrong(stack, wanted)).status == 200
            await receiver.until(1)
            before = await until_recalled(stack, 1)
        receiver.status = "200 OK"
        num_failed = len(receiver.received)
        async with gateway(tmp_path, "a", receiver=receiver) as again:
            await receiver.until(num_failed + 1)
            assert (await recalls(again))["data"] == before
            await until(lambda: again.gateway.metrics.recall_webhooks.labels("delivered").value)
        async with gateway(tmp_path, "a", receiver=receiver) as third:
            await third.gateway._recalls.delivery.step()
        assert len(receiver.received) == num_failed + 1
        assert len({webhook.headers["webhook-id"] for webhook in receiver.received}) == 1


async def test_feedback_after_a_restart_recalls_what_an_earlier_process_served(tmp_path: Path) -> None:
    async with gateway(tmp_path, "a") as stack:
        await store_one(stack)
        wanted = [await served(stack, text) for text in NEAR[:2]]
    async with gateway(tmp_path, "a") as again:
        await until(lambda: again.gateway._cache.exact.num_entries)
        reported = await report_wrong(again, wanted[0])
        assert (reported.status, reported.json["quarantined"]) == (200, True)
        found = await until_recalled(again, 2)
        assert [(notice["request_id"], notice["basis"]) for notice in found] == [
            (wanted[0], "response"),
            (wanted[1], "entry"),
        ]
        assert (await report_wrong(again, wanted[0])).status == 200
        assert (await report_wrong(again, wanted[0], GUEST)).status == 404
        assert len((await recalls(again))["data"]) == 2


async def test_an_audit_recalls_and_a_review_recalls(tmp_path: Path) -> None:
    async with gateway(tmp_path, "a", audit_ratio=1.0) as stack:
        draw(stack, 0.0)
        await store_one(stack, fresh="Press 2.")
        audited = await served(stack, NEAR[0])
        (notice,) = await until_recalled(stack, 1)
        assert (notice["request_id"], notice["reason"], notice["basis"]) == (audited, "audit", "response")
        assert notice["served_at"] <= notice["recalled_at"]

        await store_one(stack, "How do I knit a scarf?", answer="Use needles.", fresh="Use needles.")
        right = await served(stack, "How do I knit a scarf please?")
        await until(lambda: stack.gateway._cache.audits.get(right))
        review = {"verdict": "wrong"}
        assert (await stack.call(review, path=f"/admin/api/cache/audits/{right}", admin=True)).status == 200
        notices = await until_recalled(stack, 2)
        assert (notices[1]["request_id"], notices[1]["reason"]) == (right, "review")
        shown = (await stack.get("/admin/api/cache", admin=True)).json["recalls"]
        assert shown == {"is_on": True, "notices": 2, "delivered": 0, "failed": 0, "given_up": 0}


async def test_receivers_of_a_shared_entry_are_notified_whichever_tenant_they_are(tmp_path: Path) -> None:
    async with gateway(tmp_path, "a", audit_ratio=1.0, scope="shared") as stack:
        stored = await store_one(stack, fresh="Press 2.")
        draw(stack, 1.0)
        of_guest = await served(stack, NEAR[0], GUEST)
        draw(stack, 0.0)
        of_shop = await served(stack, NEAR[1])
        (own,) = await until_recalled(stack, 1)
        (other,) = await until_recalled(stack, 1, GUEST)
        assert (own["request_id"], own["basis"]) == (of_shop, "response")
        assert (other["request_id"], other["basis"]) == (of_guest, "entry")
        assert own["entry"] == stored.headers["x-request-id"]
        assert stored.headers["x-request-id"] not in str(other)
        assert of_shop not in str(other)


async def test_pages_follow_a_cursor(tmp_path: Path) -> None:
    async with gateway(tmp_path, "a") as stack:
        await store_one(stack)
        wanted = [await served(stack, text) for text in NEAR]
        await report_wrong(stack, wanted[0])
        everything = await until_recalled(stack, 4)
        after, pages = "0", []
        for _ in range(3):
            page = await recalls(stack, query=f"?after={after}&limit=3")
            pages.append((len(page["data"]), page["has_more"]))
            after = page["cursor"]
        assert pages == [(3, True), (1, False), (0, False)]
        assert [notice["request_id"] for notice in everything] == wanted, "in the order of their service"


@pytest.mark.parametrize("query", ["after=x", "after=-1", "limit=0", "limit=1001", "limit=many"])
async def test_a_query_that_means_nothing_is_refused(tmp_path: Path, query: str) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.get(f"/v1/recalls?{query}")
        assert (reply.status, reply.error["param"]) == (400, query.partition("=")[0])


async def test_recalls_need_a_key_and_may_be_switched_off(tmp_path: Path) -> None:
    async with gateway(tmp_path, "a") as stack:
        assert (await stack.get("/v1/recalls")).status == 401
    settings = {"cache.recalls.retention_days": 0.0}
    async with similar(tmp_path, settings=settings) as (off, _):
        reply = await off.get("/v1/recalls")
        assert (reply.status, "retention_days" in reply.error["message"]) == (404, True)
        dev: dict[str, str] = {}
        await store_one(off, who=dev)
        request = await served(off, NEAR[0], dev)
        assert (await report_wrong(off, request, dev)).status == 200
        assert await off.gateway._stores.control.keys("recalls.received.dev") == ()


async def test_without_the_store_the_list_is_refused_and_not_empty(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis").start()
    try:
        async with gateway(tmp_path, "a", server.url) as stack:
            server.kill()
            reply = await stack.get("/v1/recalls", headers=SHOP)
            assert (reply.status, reply.headers["x-should-retry"]) == (503, "true")
    finally:
        server.kill()

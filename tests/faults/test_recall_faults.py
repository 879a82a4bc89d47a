"""Recall notices of gateways that are killed: one for each request in `GET /v1/recalls`, and each at the webhook."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import GatewayProcess, gateway_process
from tests.gateway.api.test_recalls import SECRET, SHOP, policy
from tests.gateway.background.test_cache_auditor import replies
from tests.gateway.cache.similar_stack import cache_of, question
from tests.gateway.recalls.webhook_receiver import WebhookReceiver
from tests.gateway.scripted import ScriptedUpstream, Wire
from tests.gateway.stack import Reply, encode
from tests.gateway.store.redis_server import RedisServer

pytestmark = pytest.mark.e2e

_TOPICS = (
    "How do I reset the password of a mailbox",
    "How do I knit a scarf of thick wool",
    "How do I bake a loaf of dark bread",
    "How do I plant a row of old roses",
)
_FILLERS = [" ".join(words) for words in permutations(("again", "then", "so", "there"), 2)]
_WRITTEN_S = 1.0
"""Time within which a gateway has written who received an answer, with a margin."""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.kill()


class Client:
    """A tenant at one gateway process after another, which knows what it was served."""

    def __init__(self) -> None:
        self.port = 0
        self.served: dict[str, float] = {}
        """Instant at which each similar answer was whole, by request id."""

    async def call(self, body: Any = None, **how: Any) -> Reply:
        """Send one request and read everything."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(encode(body, headers=SHOP, **how))
            return Reply(await asyncio.wait_for(reader.read(), 20))
        finally:
            writer.close()

    async def store(self, topic: str, upstream: ScriptedUpstream) -> None:
        """Let an answer be stored, and wait until similar questions find it."""
        upstream.scripts = [replies("Press 1.")]
        assert cache_of(await self.call(question(f"{topic}?"))) == "miss"
        for first, second in permutations(("today", "now", "kindly", "ever"), 2):
            await asyncio.sleep(0.5)
            if await self.similar(f"{topic} {first} {second}?"):  # a question that found nothing is stored, too
                return
        raise AssertionError(f"nothing similar to {topic!r} is found")

    async def similar(self, text: str) -> str | None:
        """Return the request id of a similar answer; None where another one came."""
        reply = await self.call(question(text))
        if cache_of(reply) != "hit-semantic":
            return None
        request_id = reply.headers["x-request-id"]
        self.served[request_id] = time.monotonic()
        return request_id

    async def report_wrong(self, request_id: str) -> int:
        """Send feedback that recalls an answer; return the status."""
        return (await self.call({"request_id": request_id, "verdict": "wrong"}, path="/v1/feedback")).status

    async def recalled(self) -> list[dict[str, Any]]:
        """Return all notices, page by page."""
        found: list[dict[str, Any]] = []
        cursor = "0"
        while True:
            reply = await self.call(path=f"/v1/recalls?after={cursor}&limit=7", method="GET")
            assert reply.status == 200, reply.body
            found += reply.json["data"]
            cursor = reply.json["cursor"]
            if not reply.json["has_more"]:
                return found


async def _slow(wire: Wire) -> None:
    """Answer later than any similar answer is found."""
    await asyncio.sleep(3.0)
    await replies("Late.")(wire)


async def _attached(gateway: GatewayProcess, client: Client) -> None:
    started = await gateway.until("started")
    client.port = int(started["listening"]["public"][0].rpartition(":")[2])


async def _kill_at(gateway: GatewayProcess, delay_s: float) -> float:
    """Kill a gateway after a pause; return the instant."""
    await asyncio.sleep(delay_s)
    gateway.process.kill()
    killed_at = time.monotonic()
    await gateway.process.wait()
    return killed_at


async def test_each_request_has_one_notice_whenever_its_gateway_is_killed(
    tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_RECALL_SECRET", SECRET)
    rng, client = random.Random(34), Client()
    written: set[str] = set()
    by_topic: list[set[str]] = []
    settings = {"store.address": redis.url, "store.timeout_s": 2.0, "cache.shared": True}
    settings |= {"cache.recalls.allow_private_webhooks": True}
    async with WebhookReceiver() as receiver, ScriptedUpstream(tmp_path / "small.sock", _slow) as upstream:

        def gateway(name: str) -> Any:
            return gateway_process(
                tmp_path,
                name,
                upstream.path,
                listen="127.0.0.1:0",
                policy=policy(tmp_path, receiver),
                program=("tests.gateway.cache.word_gateway",),
                settings=settings,
            )

        for number, topic in enumerate(_TOPICS):
            async with gateway(f"g{number}") as process:
                await _attached(process, client)
                await client.store(topic, upstream)
                texts = [f"{topic} {filler} please?" for filler in _FILLERS]
                found = await asyncio.gather(*map(client.similar, texts[:-1]))
                by_topic.append({one for one in found if one is not None})
                await asyncio.sleep(_WRITTEN_S * (1.1 if number % 2 else rng.random()))
                first = min(by_topic[-1])
                killing = asyncio.create_task(_kill_at(process, rng.uniform(0.0, 0.15)))
                ends = await asyncio.gather(
                    client.report_wrong(first), client.similar(texts[-1]), return_exceptions=True
                )
                assert all(not isinstance(end, AssertionError) for end in ends)
                killed_at = await killing
                written |= {one for one, at in client.served.items() if at < killed_at - _WRITTEN_S}
        async with gateway("last") as process:
            await _attached(process, client)
            for known in filter(None, (written & ids for ids in by_topic)):
                assert await client.report_wrong(min(known)) == 200
            async with asyncio.timeout(60):
                while not written <= {notice["request_id"] for notice in await client.recalled()}:
                    await asyncio.sleep(0.1)
            await receiver.until(1)  # the lease of a gateway that was killed ends first
            await _kill_at(process, rng.uniform(0.0, 0.05))
        async with gateway("after") as process:
            await _attached(process, client)
            notices = await client.recalled()
            async with asyncio.timeout(60):
                while {one["id"] for one in notices} - {webhook.headers["webhook-id"] for webhook in receiver.received}:
                    await asyncio.sleep(0.1)
            await asyncio.sleep(1.0)
            notices = await client.recalled()
    by_request = Counter(notice["request_id"] for notice in notices)
    assert set(by_request.values()) == {1}
    assert written <= by_request.keys() <= client.served.keys()
    assert len(written) >= len(_FILLERS)
    ids = {notice["request_id"]: notice["id"] for notice in notices}
    sent = {(webhook.event["data"]["request_id"], webhook.headers["webhook-id"]) for webhook in receiver.received}
    assert sent == set(ids.items()), "each notice arrives, with one id"

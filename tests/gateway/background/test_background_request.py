"""Requests that nobody waits for: sent where there is room, and never in anybody's way."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from gateway.background.background_request import BackgroundRequest, BackgroundRequester
from gateway.chat.request import ChatRequestParser
from gateway.limits.permit import AdmissionRequest
from gateway.timeline import RequestIds
from tests.gateway.scripted import Wire
from tests.gateway.stack import Stack, chat, policy_text, running


def requester() -> BackgroundRequester:
    rng = random.Random(1)
    return BackgroundRequester(rng=rng, ids=RequestIds(rng))


def question(stack: Stack, document: dict[str, Any] | None = None, **fields: Any) -> BackgroundRequest:
    snapshot = stack.gateway.snapshot
    assert snapshot is not None
    request = ChatRequestParser().parse(msgspec.json.encode(chat(**fields)))
    return BackgroundRequest(request, snapshot, snapshot.router.match("auto", None, {}), "shop", b"salt", document)


async def test_the_clients_request_goes_without_its_transport_and_comes_back_whole(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        requested = question(stack, stream=True, stream_options={"include_usage": True}, temperature=0.5)
        live = requester().choice(requested)
        assert live is not None
        assert live.id == "small"
        answer = await requester().deployment(requested, live)
        assert answer is not None
        assert b"hello" in answer
        (sent,) = stack.small.received
        assert {"stream", "stream_options"}.isdisjoint(sent.json)
        assert (sent.json["model"], sent.json["temperature"]) == ("tiny", 0.5)
        assert sent.headers["x-penstock-cache-salt"] == "salt"
        assert UUID(sent.headers["x-request-id"])
        assert live.in_flight == 0


async def test_a_request_of_the_gateways_own_is_sent_as_it_is_for_that_model(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        requested = question(stack, {"messages": [{"role": "user", "content": "same?"}], "max_tokens": 1})
        live = requested.snapshot.deployments["large"]
        await requester().deployment(requested, live)
        assert stack.large.received[0].json["model"] == "big"
        assert stack.large.received[0].json["max_tokens"] == 1


async def test_the_salt_is_in_the_body_where_the_deployment_reads_it_there(tmp_path: Path) -> None:
    policy = policy_text(tmp_path).replace("model: tiny,", "model: tiny, prefix_salt: body,")
    async with running(tmp_path, policy=policy) as stack:
        requested = question(stack, cache_salt="a client's")
        await requester().deployment(requested, requested.snapshot.deployments["small"])
        assert stack.small.received[0].json["cache_salt"] == "salt"


async def test_a_busy_deployment_is_left_alone(tmp_path: Path) -> None:
    async with running(tmp_path, permits=2) as stack:
        requested = question(stack)
        live = requested.snapshot.deployments["small"]
        permit = live.limiter.try_acquire(AdmissionRequest(requested.snapshot.lanes["interactive"]))
        assert permit is not None
        assert await requester().deployment(requested, live) is None
        permit.release()
        live.is_ready = False
        assert await requester().deployment(requested, live) is None
        live.is_ready = True
        assert stack.small.received == []


async def test_a_failure_is_no_answer_and_reports_nothing_of_the_deployments_health(tmp_path: Path) -> None:
    async def broken(wire: Wire) -> None:
        wire.abort()

    async def refused(wire: Wire) -> None:
        await wire.answer(b'{"error":{}}', 500)

    async with running(tmp_path) as stack:
        requested = question(stack)
        live = requested.snapshot.deployments["small"]
        stack.small.scripts = [broken, broken, refused]
        assert [await requester().deployment(requested, live) for _ in range(2)] == [None, None]
        assert live.health.is_usual
        assert live.in_flight == 0

"""Between a client and its upstreams: a similar response that is not served is a prediction of the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.cache.exact.entry import CacheEntry
from gateway.cache.semantic.near_miss import MAX_ANSWER_BYTES, draft_of
from gateway.cache.semantic.semantic_tier import SemanticResult
from gateway.telemetry.records.cache_reasons import SimilarReason
from routing_policies.policy.document import Cache
from tests.gateway.cache.similar_stack import cache_of, call, completion, echo, keep, similar, similar_policy, until
from tests.gateway.forwarding.test_resumption import reporting, text_of
from tests.gateway.scripted import Wire, chunk
from tests.gateway.stack import Stack

STORED = "How do I reset the password of a mailbox?"
NEAR = "How do I reset the colour of a lamp on a desk?"
FAR = "Which trains run on Sundays?"
DRAFTS = "ttl_s: 60, audit_ratio: 0.0, draft_threshold: 0.3"
ANSWER = f"You asked: {STORED}"
COUNTED: dict[str, Any] = {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 1}


def policy(folder: Path, cache: str = DRAFTS, prediction: str = "on") -> str:
    return similar_policy(folder, cache).replace("model: tiny,", f"model: tiny, prediction: {prediction},")


def last_body(stack: Stack) -> dict[str, Any]:
    """What the deployment was sent last."""
    body: dict[str, Any] = (stack.small.received or stack.large.received)[-1].json
    return body


async def confirming(wire: Wire) -> None:
    """An engine that counts what it accepted of a prediction, as a stream or plain."""
    has_prediction = wire.request.json.get("prediction") is not None
    plain = json.loads(completion("Like this"))
    if has_prediction:
        plain["usage"]["completion_tokens_details"] = COUNTED
    if not wire.request.json.get("stream"):
        await wire.answer(json.dumps(plain).encode())
        return
    last = {**json.loads(chunk(usage=(7, 3))), "usage": plain["usage"]}
    await wire.start_stream()
    for data in (chunk("Like this"), chunk(finish="stop"), json.dumps(last).encode(), b"[DONE]"):
        await wire.event(data)
    await wire.end()


async def overloaded(wire: Wire) -> None:
    await wire.answer(b'{"error":{"message":"no","type":"x","param":null,"code":"y"}}', 503)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_near_miss_goes_along_and_the_client_does_not_see_it(tmp_path: Path, stream: bool) -> None:
    async with similar(tmp_path, policy=policy(tmp_path)) as (stack, _):
        stack.small.otherwise = echo()
        await keep(stack, STORED)
        stack.small.otherwise = confirming
        fields: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        reply = await call(stack, NEAR, **fields)

        assert (reply.status, cache_of(reply)) == (200, "miss")
        assert last_body(stack)["prediction"] == {"type": "content", "content": ANSWER}
        assert last_body(stack)["messages"][-1]["content"] == NEAR
        assert b"prediction" not in reply.body
        assert b'"total_tokens"' in reply.body
        metrics = (await stack.get("/metrics", admin=True)).body.decode()
        assert 'penstock_cache_drafts_total{route="main"} 1.0' in metrics
        assert 'penstock_prediction_tokens_total{result="accepted",source="near_miss"} 3.0' in metrics
        assert 'penstock_prediction_tokens_total{result="rejected",source="near_miss"} 1.0' in metrics
        found = (await stack.get(f"/admin/api/requests/{reply.headers['x-request-id']}", admin=True)).json["request"]
        assert found["neighbour"]["drafted"] is True
        assert found["neighbour"]["served"] is False
        assert found["predicted_tokens"] == [3, 1]
        assert "went along as a prediction: of it, 3 tokens were accepted and 1 rejected." in found["why"]

        stored = await call(stack, NEAR)  # what is stored tells nothing of it either
        assert cache_of(stored) == "hit-exact"
        assert b"prediction" not in stored.body


@pytest.mark.parametrize(
    ("name", "cache", "prediction", "question"),
    [
        ("off by default", "ttl_s: 60, audit_ratio: 0.0", "on", NEAR),
        ("too far", DRAFTS, "on", FAR),
        ("below the bound", "ttl_s: 60, audit_ratio: 0.0, draft_threshold: 0.74", "on", NEAR),
        ("a deployment that is no engine of ours", DRAFTS, "auto", NEAR),
        ("a deployment that takes none", DRAFTS, "off", NEAR),
    ],
)
async def test_else_nothing_goes_along(tmp_path: Path, name: str, cache: str, prediction: str, question: str) -> None:
    async with similar(tmp_path, policy=policy(tmp_path, cache, prediction)) as (stack, _):
        stack.small.otherwise = echo()
        await keep(stack, STORED)
        assert cache_of(await call(stack, question)) == "miss"
        assert "prediction" not in last_body(stack), name
        assert "penstock_cache_drafts_total{" not in (await stack.get("/metrics", admin=True)).body.decode()


async def test_an_engine_of_ours_gets_near_misses_without_being_named(tmp_path: Path) -> None:
    async with similar(tmp_path, policy=policy(tmp_path, prediction="auto")) as (stack, _):
        stack.small.otherwise = echo()
        await keep(stack, STORED)
        for live in stack.gateway._current().deployments.values():
            live.note_stated(0.0, "ready")
        await call(stack, NEAR)
        assert last_body(stack)["prediction"]["content"] == ANSWER


async def test_a_stream_that_goes_on_elsewhere_takes_its_near_miss_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_KEY", "0123456789abcdef" * 2)
    keyed = "model: tiny, prediction: on, resume_key_env: STREAM_KEY,"
    text = policy(tmp_path).replace("model: big,", keyed).replace("model: tiny, prediction: on,", keyed, 1)
    text = text.replace("    cache: {mode", "    resume: exact\n    cache: {mode", 1)
    async with similar(tmp_path, policy=text) as (stack, _):
        stack.small.otherwise = echo()
        await keep(stack, STORED)
        stack.small.scripts = [reporting("one ", ends=False)]
        stack.large.scripts = [reporting("two", ends=True)]
        reply = await call(stack, NEAR, stream=True)

        assert text_of(reply.body) == "one two"
        first, second = stack.small.received[-1].json, stack.large.received[-1].json
        assert first["prediction"] == {"type": "content", "content": ANSWER}
        assert second == {**first, "penstock_choices": {"0": {"token_ids": [4], "finish": None}}}


async def test_an_answer_of_a_deployment_that_takes_none_after_one_that_failed_has_no_draft(tmp_path: Path) -> None:
    text = policy(tmp_path).replace("model: big,", "model: big, prediction: off,")
    async with similar(tmp_path, policy=text) as (stack, _):
        stack.small.otherwise = echo()
        await keep(stack, STORED)
        stack.small.scripts, stack.large.otherwise = [overloaded], echo()
        reply = await call(stack, NEAR)

        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "large")
        assert "prediction" in stack.small.received[-1].json
        assert "prediction" not in stack.large.received[-1].json
        found = (await stack.get(f"/admin/api/requests/{reply.headers['x-request-id']}", admin=True)).json["request"]
        assert found["neighbour"]["drafted"] is False
        assert await stack.metric("penstock_cache_drafts_total") == 0


async def test_the_client_s_own_prediction_takes_precedence(tmp_path: Path) -> None:
    async with similar(tmp_path, policy=policy(tmp_path)) as (stack, _):
        stack.small.otherwise = echo()
        await keep(stack, STORED)
        stack.small.otherwise = confirming
        own = {"type": "content", "content": "Mine"}
        reply = await call(stack, NEAR, prediction=own)
        assert last_body(stack)["prediction"] == own
        assert reply.json["usage"]["completion_tokens_details"] == COUNTED
        metrics = (await stack.get("/metrics", admin=True)).body.decode()
        assert 'penstock_prediction_tokens_total{result="accepted",source="client"} 3.0' in metrics
        assert "penstock_cache_drafts_total{" not in metrics

        again = await call(stack, NEAR)  # the same question without a prediction has the same answer
        assert cache_of(again) == "hit-exact"
        assert "completion_tokens_details" not in again.json["usage"]


async def test_a_deployment_that_refuses_predictions_gets_none(tmp_path: Path) -> None:
    async with similar(tmp_path, policy=policy(tmp_path, prediction="off")) as (stack, _):
        stack.small.otherwise = echo()
        await call(stack, STORED, prediction={"type": "content", "content": "Mine"})
        assert "prediction" not in last_body(stack)
        assert last_body(stack)["messages"][-1]["content"] == STORED


async def test_another_context_s_answer_is_no_prediction(tmp_path: Path) -> None:
    async with similar(tmp_path, policy=policy(tmp_path)) as (stack, _):
        stack.small.otherwise = echo()
        await keep(stack, STORED)
        await call(stack, NEAR, temperature=0.5)
        assert "prediction" not in last_body(stack)
        await until(lambda: stack.gateway._cache.semantic.num_entries == 2)
        await call(stack, "How do I change the shape of a lamp?", temperature=0.5)
        assert last_body(stack)["prediction"]["content"] == f"You asked: {NEAR}"


ENTRY = CacheEntry(
    id="req_1",
    exact=b"e",
    context=b"c",
    text=STORED,
    answer=completion("Hello"),
    tenant="dev",
    route="main",
    deployment="small",
    created_at=0.0,
    expires_at=9.0,
)


def finding(answer: bytes = ENTRY.answer, reason: SimilarReason = "doubtful") -> SemanticResult:
    entry = msgspec.structs.replace(ENTRY, answer=answer)
    return SemanticResult(reason, entry, match_probability=0.5, threshold=0.75)


@pytest.mark.parametrize(
    ("found", "threshold", "expected"),
    [
        (finding(), 0.5, "Hello"),
        (finding(reason="closed"), 0.5, "Hello"),
        (finding(), 0.51, None),
        (finding(), None, None),
        (finding(reason="similar"), 0.5, None),
        (SemanticResult("alone"), 0.0, None),
        (None, 0.0, None),
        (finding(b'{"choices":[]}'), 0.5, None),
        (finding(b'{"choices":[{"message":{"content":null,"tool_calls":[{}]}}]}'), 0.5, None),
        (finding(b'{"choices":[{"message":{"content":[{"type":"text"}]}}]}'), 0.5, None),
        (finding(b"no JSON"), 0.5, None),
        (finding(completion("x" * MAX_ANSWER_BYTES)), 0.5, None),
    ],
)
def test_what_is_a_draft(found: SemanticResult | None, threshold: float | None, expected: str | None) -> None:
    assert draft_of(found, Cache(mode="exact_then_semantic", draft_threshold=threshold)) == expected

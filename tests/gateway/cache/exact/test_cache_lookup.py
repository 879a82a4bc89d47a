"""An answer that the cache knows: sent early, in the form that was requested, and recorded as such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cache.exact.cache_lookup import CacheIdentity, CacheLookup
from gateway.chat.request import ChatRequest
from gateway.telemetry.records.record import CacheResult, Usage
from tests.gateway.scripted import COMPLETION
from tests.gateway.stack import Stack, chat, policy_text, running


class FakeCache:
    """Knows one answer."""

    def lookup(self, request: ChatRequest, wanted: CacheIdentity) -> CacheLookup:
        return CacheLookup(CacheResult.HIT_EXACT, "exact", answer=COMPLETION, age_s=12.7)

    def stale(self, request: ChatRequest, wanted: CacheIdentity) -> CacheLookup | None:
        return None

    def store(
        self,
        lookup: CacheLookup,
        answer: bytes | None,
        *,
        is_lasting: bool,
        request_id: str,
        deployment: str,
        usage: Usage | None,
    ) -> None:
        raise AssertionError("nobody was asked, so there is nothing to keep")

    def unix_time(self) -> int:
        return 77

    def note_hit(self, request_id: str, entry_id: str) -> None:
        raise AssertionError("this answer has no entry")


def cached(folder: Path) -> str:
    """The test policy, with a cache on the route that is called."""
    return policy_text(folder).replace("  - id: main\n", "  - id: main\n    cache: {mode: exact, ttl_s: 60}\n")


def with_cache(stack: Stack) -> Stack:
    stack.gateway.pipeline._cache._cache = FakeCache()  # type: ignore[assignment]
    return stack


def events(body: bytes) -> list[Any]:
    lines = [part.removeprefix(b"data: ") for part in body.split(b"\n\n") if part]
    assert lines.pop() == b"[DONE]"
    return [json.loads(line) for line in lines]


async def test_a_cached_response_is_sent_with_an_id_of_its_own_and_nothing_is_called(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached(tmp_path)) as stack:
        reply = await with_cache(stack).call(chat())

        own = {"id": f"chatcmpl-{reply.headers['x-request-id'].removeprefix('req_')}", "created": 77}
        assert (reply.status, reply.json) == (200, {**json.loads(COMPLETION), **own})
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["x-penstock-cache"] == "hit-exact"
        assert reply.headers["x-penstock-deployment"] == "cache"
        assert reply.headers["x-penstock-route"] == "main"
        assert reply.headers["age"] == "12"
        assert reply.headers["server-timing"].startswith("admit;dur=")
        assert stack.small.received == stack.large.received == []


async def test_a_cached_response_is_recorded_as_cached(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached(tmp_path)) as stack:
        await with_cache(stack).call(chat())
        metrics = (await stack.get("/metrics", admin=True)).body.decode()

        (line,) = stack.lines()
        assert (line["outcome"], line["deployment"], line["cache"]) == ("cached", "cache", "hit_exact")
        assert line["ttft_ms"] <= line["total_ms"]
        assert 'penstock_requests_total{deployment="cache",outcome="cached",route="main"} 1.0' in metrics


async def test_a_cached_response_becomes_a_stream_for_who_wants_one(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached(tmp_path)) as stack:
        reply = await with_cache(stack).call(chat(stream=True, stream_options={"include_usage": True}))

        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        first, last, usage = events(reply.body)
        whole = json.loads(COMPLETION)
        assert first["choices"][0]["delta"] == whole["choices"][0]["message"]
        own = f"chatcmpl-{reply.headers['x-request-id'].removeprefix('req_')}"
        assert {(event["id"], event["created"]) for event in (first, last, usage)} == {(own, 77)}
        assert last["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
        assert (first["usage"], usage["choices"], usage["usage"]) == (None, [], whole["usage"])


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cached_response_carries_timing_on_request(tmp_path: Path, stream: bool) -> None:
    async with running(tmp_path, policy=cached(tmp_path)) as stack:
        reply = await with_cache(stack).call(chat(stream=stream), headers={"x-penstock-timing": "full"})

        last = events(reply.body)[-1] if stream else reply.json
        assert {"admit", "cache"} <= last["penstock"]["timing"]["gateway"].keys()

"""The exact cache between a client and its upstreams, over real sockets."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.cache.exact.cache_lookup import CacheIdentity
from gateway.cache.exact.exact_cache import ExactCache
from gateway.cache.exact.exact_tier import ExactTier
from gateway.chat.request import ChatRequestParser
from routing_policies.policy.document import Cache
from tests.gateway.scripted import COMPLETION, Wire, chunk
from tests.gateway.stack import Stack, chat, policy_text, running

EXACT = "    cache: {mode: exact, ttl_s: 60}\n"


def cached_policy(folder: Path, cache: str = EXACT, **values: Any) -> str:
    """The test policy with a cache on its first route."""
    head, solo, tail = policy_text(folder, **values).partition("  - id: solo")
    return head + cache + solo + tail


async def one_stream(wire: Wire) -> None:
    """Two tokens and the end; usage where it is requested, and a plain answer that is equal."""
    if not wire.request.json.get("stream"):
        await wire.answer(COMPLETION.replace(b"hello", b"Hello"))
        return
    usage = [chunk(usage=(7, 2))] if wire.request.json.get("stream_options") else []
    await wire.start_stream()
    for data in (chunk("Hel"), chunk("lo"), chunk(finish="stop"), *usage, b"[DONE]"):
        await wire.event(data)
    await wire.end()


WITH_USAGE: Any = {"stream": True, "stream_options": {"include_usage": True}}


class Held:
    """A stream that states its first token and waits to be let on."""

    def __init__(self, ending: tuple[bytes, ...] = (chunk(usage=(7, 2)), b"[DONE]")) -> None:
        self.ending = ending
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.wire: Wire | None = None

    async def __call__(self, wire: Wire) -> None:
        self.wire = wire
        await wire.start_stream()
        await wire.event(chunk("Hel"))
        self.has_begun.set()
        await self.may_end.wait()
        await wire.event(chunk("lo"))
        await wire.event(chunk(finish="stop"))
        for data in self.ending:
            await wire.event(data)
        await wire.end()


async def until_followed(stack: Stack, num: int = 1) -> None:
    """Until so many requests wait for the answer under way."""
    for _ in range(400):
        if sum(shared.num_followers for shared in stack.gateway._cache.exact._shared._by_key.values()) >= num:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("nobody follows")


def text_of(body: bytes) -> str:
    """The text of an event stream."""
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])


async def test_the_second_request_is_answered_from_the_first(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        first = await stack.call(chat())
        second = await stack.call(chat())

        assert (first.headers["x-penstock-cache"], second.headers["x-penstock-cache"]) == ("miss", "hit-exact")
        assert first.body == COMPLETION
        assert {**second.json, "id": "", "created": 0} == {**first.json, "id": "", "created": 0}
        third = await stack.call(chat())
        assert len({reply.json["id"] for reply in (first, second, third)}) == 3
        assert second.json["created"] > 1_000_000_000
        assert second.headers["x-penstock-deployment"] == "cache"
        assert second.headers["age"] == "0"
        assert len(stack.small.received) == 1


async def test_a_stream_is_stored_once_and_served_both_ways(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = one_stream
        streamed = await stack.call(chat(**WITH_USAGE))
        again = await stack.call(chat(stream=True))
        plain = await stack.call(chat())

        assert streamed.headers["x-penstock-cache"] == "miss"
        assert again.headers["x-penstock-cache"] == plain.headers["x-penstock-cache"] == "hit-exact"
        assert text_of(streamed.body) == text_of(again.body) == "Hello"
        assert plain.json["choices"][0]["message"]["content"] == "Hello"
        assert plain.json["usage"]["completion_tokens"] == 2
        assert len(stack.small.received) == 1


@pytest.mark.parametrize("fields", [{}, {"stream": True, "stream_options": {"include_usage": True}}])
async def test_a_cached_response_without_usage_is_a_miss_for_who_is_to_get_it(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = one_stream
        replies = [
            await stack.call(chat(**requested)) for requested in ({"stream": True}, {"stream": True}, fields, fields)
        ]
        replies.append(await stack.call(chat(stream=True)))

        found = [reply.headers["x-penstock-cache"] for reply in replies]
        assert found == ["miss", "hit-exact", "miss", "hit-exact", "hit-exact"]
        assert all(b'"completion_tokens":' in reply.body for reply in replies[2:4])
        metrics = (await stack.get("/metrics", admin=True)).body.decode()
        assert 'penstock_cache_lookups_total{reason="lacking",result="miss"} 1.0' in metrics


@pytest.mark.parametrize(("requested", "expected"), [("flex", "miss"), ("auto", "hit-exact"), ("default", "hit-exact")])
async def test_a_cached_response_of_another_service_tier_is_a_miss(
    tmp_path: Path, requested: str, expected: str
) -> None:
    async def answer(wire: Wire) -> None:
        tier = wire.request.json.get("service_tier", "default")
        await wire.answer(json.dumps({**json.loads(COMPLETION), "service_tier": tier}).encode())

    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = answer
        await stack.call(chat())
        for cache in (expected, "hit-exact"):
            assert (await stack.call(chat(service_tier=requested))).headers["x-penstock-cache"] == cache


async def test_a_stream_without_a_mark_of_its_end_is_stored(tmp_path: Path) -> None:
    async def unmarked(wire: Wire) -> None:
        await wire.start_stream()
        for data in (chunk("Hel"), chunk("lo"), chunk(finish="stop"), chunk(usage=(7, 2))):
            await wire.event(data)
        await wire.end()

    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = unmarked
        first = await stack.call(chat(**WITH_USAGE))
        assert first.body.endswith(b"data: [DONE]\n\n")
        for fields in (WITH_USAGE, {"stream": True}, {}):
            assert (await stack.call(chat(**fields))).headers["x-penstock-cache"] == "hit-exact"
        assert len(stack.small.received) == 1


async def test_followers_of_a_stream_without_a_mark_get_the_mark(tmp_path: Path) -> None:
    held = Held(ending=())
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = held
        leader = asyncio.create_task(stack.call(chat(stream=True)))
        await held.has_begun.wait()
        follower = asyncio.create_task(stack.call(chat(stream=True)))
        await until_followed(stack)
        held.may_end.set()
        replies = await asyncio.gather(leader, follower)
        ids = {line.split(b'"')[3] for reply in replies for line in reply.body.splitlines() if b'"id"' in line}
        assert len(ids) == 2  # one for each
        assert len({re.sub(rb'"id": ?"[^"]*"', b"", reply.body) for reply in replies}) == 1
        assert replies[1].body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("index", [3_000_000, 10**12, -1, True, "0"])
async def test_a_tool_call_with_an_index_that_is_none_is_passed_on_and_not_stored(
    tmp_path: Path, index: object
) -> None:
    call = {"index": index, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    delta = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}

    async def answer(wire: Wire) -> None:
        await wire.start_stream()
        for data in (json.dumps(delta).encode(), chunk(finish="tool_calls"), b"[DONE]"):
            await wire.event(data)
        await wire.end()

    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = answer
        for _ in range(2):
            reply = await stack.call(chat(stream=True))
            assert json.dumps(delta).encode() in reply.body
            assert reply.headers["x-penstock-cache"] == "miss"
        assert {line["outcome"] for line in stack.lines()} == {"completed"}


async def test_hundreds_of_thousands_of_choices_are_passed_on_and_not_stored(tmp_path: Path) -> None:
    many = b'{"choices":[' + b",".join([b"{}"] * 300_000) + b"]}"

    async def answer(wire: Wire) -> None:
        await wire.start_stream()
        for data in (chunk("Hel"), many, chunk(finish="stop"), b"[DONE]"):
            await wire.event(data)
        await wire.end()

    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        stack.small.otherwise = answer
        reply = await stack.call(chat(stream=True))
        assert many in reply.body
        await stack.until_idle()
        assert stack.gateway._cache.exact.num_entries == 0
        assert stack.lines()[0]["outcome"] == "completed"


@pytest.mark.parametrize(
    ("control", "expected"), [("no-cache", "bypass"), ("no-store", "bypass"), ("max-age=0", "miss")]
)
async def test_a_client_may_refuse_a_cached_response(tmp_path: Path, control: str, expected: str) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        await stack.call(chat())
        await asyncio.sleep(0.02)  # the answer has an age
        reply = await stack.call(chat(), headers={"cache-control": control})
        assert reply.headers["x-penstock-cache"] == expected
        assert len(stack.small.received) == 2


@pytest.mark.parametrize(("ttl_s", "expected"), [(3600, "hit_exact"), (10, "miss")])
async def test_a_shorter_time_in_the_policy_holds_for_what_was_stored_before(ttl_s: int, expected: str) -> None:
    now = [1000.0]
    cache = ExactCache(ExactTier(), wall=lambda: now[0])
    request = ChatRequestParser().parse(json.dumps(chat()).encode())
    first = cache.lookup(request, CacheIdentity(Cache(mode="exact", ttl_s=3600), "main", "dev", b"tiny"))
    cache.store(first, COMPLETION, is_lasting=True, request_id="r1", deployment="small", usage=None)
    now[0] += 30.0
    again = cache.lookup(request, CacheIdentity(Cache(mode="exact", ttl_s=ttl_s), "main", "dev", b"tiny"))
    assert again.result.value == expected
    assert again.reason in ("exact", "stale")


async def test_admin_paths_are_not_on_the_public_listener(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        assert (await stack.call({"id": "x"}, path="/admin/api/cache/purge")).status == 404


async def test_tokens_that_nobody_had_to_compute_are_counted_by_what_saved_them(tmp_path: Path) -> None:
    trim = "    trim: {budget_tokens: 50, strategies: [drop_old_turns]}\n"
    async with running(tmp_path, policy=cached_policy(tmp_path, EXACT + trim)) as stack:
        await stack.call(chat())
        await stack.call(chat())
        old = [{"role": "user", "content": "x" * 2000}, {"role": "assistant", "content": "y" * 2000}]
        await stack.call({**chat(), "messages": [*old, {"role": "user", "content": "And now?"}]})
        lines = (await stack.get("/metrics", admin=True)).body.decode().splitlines()

    saved = {line.split('"')[1]: float(line.split()[-1]) for line in lines if line.startswith("penstock_saved_tokens")}
    assert saved.keys() == {"hit_exact", "trim"}
    assert saved["trim"] > 300

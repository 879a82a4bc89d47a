"""Similar questions between a client and its upstreams, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.cache.semantic.guards import guard_of
from gateway.chat.request import ChatRequest
from gateway.request_context import RequestContext
from gateway.telemetry.records.cache_reasons import GuardReason
from routing_policies.policy.document import Cache
from tests.gateway.cache.similar_stack import cache_of, call, echo, keep, question, similar, stats_of, until
from tests.gateway.scripted import Wire, chunk, hang
from tests.gateway.stack import encode

STORED = "How do I reset the password of a mailbox?"
NEAR = "How do I reset the password of a big mailbox?"
USAGE: Any = {"stream_options": {"include_usage": True}}
SLOW_S = 5.0
"""A lookup is over long before, on any machine."""


async def test_a_similar_question_gets_the_answer_that_was_given_before(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, _):
        stack.small.otherwise = echo()
        first = await keep(stack, STORED)
        stack.small.otherwise = echo(SLOW_S)
        second = await call(stack, NEAR)

        assert cache_of(second) == "hit-semantic"
        assert second.json["choices"] == first.json["choices"]
        assert second.json["id"] != first.json["id"]
        assert second.headers["x-penstock-deployment"] == "cache"
        assert second.headers["age"].isdigit()
        line = stack.lines()[-1]
        assert (line["outcome"], line["cache"]) == ("cached", "hit_semantic")
        assert "embed" in line["stages_ms"]
        assert 'penstock_cache_lookups_total{reason="similar",result="hit_semantic"} 1.0' in (
            (await stack.get("/metrics", admin=True)).body.decode()
        )


async def test_where_hits_are_usual_and_permits_rare_the_lookup_comes_first(tmp_path: Path) -> None:
    async with similar(tmp_path, permits=2) as (stack, _):
        await keep(stack, STORED)
        order = stats_of(stack).order
        order.hit_ratio, order.saved_s = 0.9, 2.0
        stack.small.otherwise = stack.large.otherwise = hang
        readers = [await stack.connect() for _ in range(4)]
        for number, (_, writer) in enumerate(readers):
            writer.write(encode(question(f"my {number}")))
        await until(lambda: len(stack.small.received) + len(stack.large.received) == 5)
        reply = await call(stack, NEAR)

        assert cache_of(reply) == "hit-semantic"
        assert len(stack.small.received) + len(stack.large.received) == 5, "nobody was asked"
        for _, writer in readers:
            writer.close()


async def test_where_nearly_every_lookup_hits_no_call_is_wasted(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, _):
        await keep(stack, STORED)
        order = stats_of(stack).order
        stack.small.otherwise = hang
        assert cache_of(await call(stack, NEAR)) == "hit-semantic"
        assert order.dispatch_s > 0, "a request was sent for nothing, and that took something"
        assert len(stack.small.received) == 2

        order.hit_ratio, order.dispatch_s, order.lookup_s = 0.95, 0.0006, 0.005
        assert cache_of(await call(stack, NEAR)) == "hit-semantic"
        assert len(stack.small.received) == 2, "nobody was asked"


async def test_a_new_question_is_on_its_way_before_anything_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    note_sent = RequestContext.note_sent

    def noting_sent(ctx: RequestContext) -> None:
        order.append("sent")
        note_sent(ctx)

    def noting_guard(request: ChatRequest, rule: Cache, tenant: str) -> GuardReason | None:
        order.append("looked")
        return guard_of(request, rule, tenant)

    monkeypatch.setattr(RequestContext, "note_sent", noting_sent)
    monkeypatch.setattr("gateway.cache.semantic_stage.guard_of", noting_guard)
    async with similar(tmp_path) as (stack, _):
        await keep(stack, STORED)
        order.clear()
        reader, writer = await stack.connect()
        for text in ("How do I knit a scarf?", "How do I prune an apple tree?"):
            order.clear()
            writer.write(encode(question(text), headers={"connection": "keep-alive"}))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        writer.close()
        assert order == ["sent", "looked"], "on a kept connection nothing stands before the request"


@pytest.mark.parametrize(
    ("text", "fields", "reason"),
    [
        (NEAR, {"temperature": 1.5}, "temperature"),
        (NEAR, {"seed": 7}, "seed"),
        (NEAR, {"n": 2}, "choices"),
        (NEAR, {"logprobs": True}, "logprobs"),
        (NEAR, {"tools": [{"type": "function", "function": {"name": "look"}}]}, "tools"),
        ("How do I reset my password of a mailbox?", {}, "personal"),
        ("How do I reset the password of a mailbox every week?", {}, "time_dependent"),
        ("How do I reset the pass\u200bword of a mailbox?", {}, "suspicious"),
        ("How do I reset the p\u0430ssword of a mailbox?", {}, "suspicious"),
        ("How do I reset \u202ethe password of a mailbox?", {}, "suspicious"),
    ],
)
async def test_what_must_not_be_reused_is_a_miss_with_its_reason(
    tmp_path: Path, text: str, fields: dict[str, Any], reason: str
) -> None:
    async with similar(tmp_path) as (stack, encoder):
        await keep(stack, STORED)
        reply = await call(stack, text, **fields)

        assert cache_of(reply) == "miss"
        metrics = (await stack.get("/metrics", admin=True)).body.decode()
        assert f'penstock_cache_lookups_total{{reason="{reason}",result="miss"}} 1.0' in metrics
        assert encoder.texts == [STORED], "it was not even encoded, so nothing similar will find it"
        assert cache_of(await call(stack, text, **fields)) == "hit-exact", "the exact tier is another matter"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({"stream": True}, "hit-semantic"), ({}, "miss"), ({"stream": True, **USAGE}, "miss")],
)
async def test_a_similar_answer_without_usage_is_none_for_who_is_to_get_it(
    tmp_path: Path, fields: dict[str, Any], expected: str
) -> None:
    delay_s = 0.0

    async def answer(wire: Wire) -> None:
        await asyncio.sleep(delay_s)
        if not wire.request.json.get("stream"):
            await echo()(wire)
            return
        await wire.start_stream()
        for data in (chunk("Press reset. " * 3000), chunk(finish="stop"), b"[DONE]"):
            await wire.event(data)
        await wire.end()

    async with similar(tmp_path) as (stack, _):
        stack.small.otherwise = answer
        await keep(stack, STORED, stream=True)  # it is long: stored a little after the request has ended
        delay_s = 2.0
        assert cache_of(await call(stack, NEAR, **fields)) == expected


@pytest.mark.parametrize(
    ("control", "expected"),
    [("no-store", "bypass"), ("no-cache", "bypass"), ("max-age=0", "miss"), ("max-age=60", "hit-semantic")],
)
async def test_a_client_chooses_inside_the_policy(tmp_path: Path, control: str, expected: str) -> None:
    async with similar(tmp_path) as (stack, _):
        await keep(stack, STORED)
        await asyncio.sleep(0.01)  # so that the entry has an age
        stack.small.otherwise = echo(SLOW_S if expected == "hit-semantic" else 0.0)
        reply = await stack.call(question(NEAR), headers={"cache-control": control})
        assert cache_of(reply) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "solo"},
        {"temperature": 0.5},
        {"max_tokens": 5},
        {"response_format": {"type": "json_object"}},
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": NEAR}]},
        {
            "messages": [
                {"role": "user", "content": "Hello there friend"},
                {"role": "assistant", "content": "Hello."},
                {"role": "user", "content": NEAR},
            ]
        },
    ],
)
async def test_the_same_words_in_another_context_are_never_answered_from_here(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    async with similar(tmp_path) as (stack, _):
        stack.small.otherwise = echo()
        await keep(stack, STORED)
        stack.small.otherwise = echo(SLOW_S)
        assert cache_of(await call(stack, NEAR)) == "hit-semantic"
        stack.small.otherwise = echo()
        assert cache_of(await stack.call({**question(NEAR), **fields})) in ("miss", "bypass")


async def test_feedback_on_a_similar_answer_quarantines_the_entry_behind_it(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, _):
        await keep(stack, STORED)
        stack.small.otherwise = echo(SLOW_S)
        served = await call(stack, NEAR)
        stack.small.otherwise = echo()
        wrong = {"request_id": served.headers["x-request-id"], "verdict": "wrong"}
        reported = await stack.call(wrong, path="/v1/feedback")

        assert (reported.status, reported.json["quarantined"]) == (200, True)
        assert cache_of(await call(stack, STORED)) == "miss"
        evidence = stats_of(stack).evidence
        assert [(sample.is_wrong, sample.was_served) for sample in evidence.samples] == [(True, True)]


async def test_a_purge_takes_an_answer_out_of_both_tiers(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, _):
        await keep(stack, STORED)
        purge = {"text": "password", "dry_run": False}
        assert (await stack.call(purge, path="/admin/api/cache/purge", admin=True)).json["covered"] == 1
        assert stack.gateway._cache.semantic.num_entries == 0
        assert cache_of(await call(stack, NEAR)) == "miss"


async def test_identical_questions_under_way_each_find_the_similar_answer(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, encoder):
        await keep(stack, STORED)
        stack.small.otherwise = hang
        may_run = encoder.hold()
        tasks = [asyncio.ensure_future(call(stack, NEAR, stream=number % 2 == 0)) for number in range(4)]
        await asyncio.wait_for(encoder.has_begun.wait(), 60)
        may_run.set()
        assert {cache_of(reply) for reply in await asyncio.gather(*tasks)} == {"hit-semantic"}
        assert len(stack.small.received) + len(stack.large.received) <= 5


async def test_routes_without_the_mode_encode_nothing(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, encoder):
        await call(stack, STORED, model="solo")
        assert encoder.texts == []
        assert (await stack.get("/readyz")).status == 200

"""Continuations of broken streams: where they go, what they carry, and how they end when nobody takes them."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.forwarding.resumption import MAX_RESUMPTIONS
from tests.gateway.scripted import Received, Script, Wire, chunk
from tests.gateway.stack import NO_EJECTION, Stack, chat, running

KEY = "0123456789abcdef0123456789abcdef"
POLICY = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: tiny, resume_key_env: STREAM_KEY}}
  - {{id: large, url: "unix:{folder}/large.sock", model: {other}, resume_key_env: STREAM_KEY}}
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [small, large]}}
    resume: {resume}
"""


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_KEY", KEY)


@asynccontextmanager
async def two(folder: Path, *, resume: str = "exact", other: str = "tiny") -> AsyncIterator[Stack]:
    text = POLICY.format(folder=folder, resume=resume, other=other)
    async with running(folder, policy=text, ejection=NO_EJECTION) as stack:
        yield stack


def reporting(*texts: str, ends: bool, digest: str | None = "exact;1", last: bytes = b"") -> Script:
    """Stream texts, each followed by the report of a token of that length; then end, or break off behind `last`."""

    async def script(wire: Wire) -> None:
        header = b"" if digest is None else b"x-penstock-resume: %b\r\n" % digest.encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n%btransfer-encoding: chunked\r\n\r\n"
        await wire.send(head % header)
        for text in texts:
            payload = b"data: %b\n\n: penstock-tokens %d\n\n" % (chunk(text), len(text))
            await wire.send(b"%x\r\n%b\r\n" % (len(payload), payload))
        if last:
            await wire.send(b"%x\r\n%b\r\n" % (len(last), last))
        if ends:
            await wire.event(chunk(finish="stop"))
            await wire.event(b"[DONE]")
        if ends or last:
            await wire.end()
        else:
            wire.abort()

    return script


def text_of(body: bytes) -> str:
    chunks = [json.loads(event[6:]) for event in body.split(b"\n\n") if event.startswith(b"data: {")]
    return "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks if one.get("choices"))


def order_of(request: Received) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(urlsafe_b64decode(request.headers["x-penstock-resume"].partition(".")[0]))
    return found


async def has_ended(stack: Stack, end: str) -> bool:
    metrics = (await stack.get("/metrics", admin=True)).body.decode()
    return f'penstock_resumed_streams_total{{deployment="small",end="{end}"}} 1.0' in metrics


async def test_a_broken_stream_goes_on_elsewhere_with_its_tokens_seed_and_identity(tmp_path: Path) -> None:
    async with two(tmp_path) as stack:
        stack.small.scripts = [reporting("one ", "two ", ends=False)]
        stack.large.scripts = [reporting("three", ends=True)]
        reply = await stack.call(chat(stream=True))
        assert text_of(reply.body) == "one two three"
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert b"penstock" not in reply.body
        (first,), (second,) = stack.small.received, stack.large.received
        assert second.json == {**first.json, "penstock_token_ids": [4, 4]}
        begun, order = order_of(first), order_of(second)
        assert begun == {"seed": begun["seed"], "can_move": True}
        assert (order["seed"], order["id"], order["created"]) == (begun["seed"], "chatcmpl-1", 1)
        assert order["digest"] == "exact;1"
        assert await has_ended(stack, "resumed")
        (line,) = stack.lines()
        assert (line["outcome"], line["deployment"], line["attempts"]) == ("completed", "large", 2)


async def test_events_without_a_report_are_computed_again(tmp_path: Path) -> None:
    unreported = b"data: " + chunk("tw") + b"\n\n"
    async with two(tmp_path) as stack:
        stack.small.scripts = [reporting("one ", ends=False, last=unreported)]
        stack.large.scripts = [reporting("two", ends=True)]
        assert text_of((await stack.call(chat(stream=True))).body) == "one two"
        assert stack.large.received[0].json["penstock_token_ids"] == [4]


@pytest.mark.parametrize(
    ("end", "script"),
    [
        ("refused", reporting("two", ends=True, digest=None)),
        ("refused", reporting("two", ends=True, digest="exact;other")),
    ],
)
async def test_a_deployment_that_would_answer_differently_is_not_taken(
    end: str, script: Script, tmp_path: Path
) -> None:
    async with two(tmp_path) as stack:
        stack.small.scripts, stack.large.scripts = [reporting("one ", ends=False)], [script]
        reply = await stack.call(chat(stream=True))
        assert text_of(reply.body) == "one "
        assert b'"error"' in reply.body
        assert b"[DONE]" not in reply.body
        assert await has_ended(stack, end)


async def test_a_stream_goes_on_only_at_a_deployment_of_its_model(tmp_path: Path) -> None:
    async with two(tmp_path, other="large") as stack:
        stack.small.scripts = [reporting("one ", ends=False)]
        reply = await stack.call(chat(stream=True))
        assert text_of(reply.body) == "one "
        assert stack.large.received == []
        assert not order_of(stack.small.received[0])["can_move"]
        assert await has_ended(stack, "no_deployment")


async def test_an_engine_whose_numbers_may_differ_is_taken_for_best_effort_alone(tmp_path: Path) -> None:
    for resume, text in (("exact", "one "), ("best_effort", "one two")):
        folder = tmp_path / resume
        folder.mkdir()
        async with two(folder, resume=resume) as stack:
            stack.small.scripts = [reporting("one ", ends=False, digest="close;1")]
            stack.large.scripts = [reporting("two", ends=True, digest="close;1")]
            assert text_of((await stack.call(chat(stream=True))).body) == text


async def test_a_stream_that_breaks_everywhere_ends_with_an_error(tmp_path: Path) -> None:
    async with two(tmp_path) as stack:
        stack.small.scripts = [reporting("a", ends=False) for _ in range(MAX_RESUMPTIONS)]
        stack.large.scripts = [reporting("a", ends=False) for _ in range(MAX_RESUMPTIONS)]
        reply = await stack.call(chat(stream=True))
        assert text_of(reply.body) == "a" * (MAX_RESUMPTIONS + 1)
        assert b"[DONE]" not in reply.body
        assert await has_ended(stack, "too_often")


async def test_an_engine_that_drains_hands_its_stream_over_and_has_not_failed(tmp_path: Path) -> None:
    async with two(tmp_path) as stack:
        stack.small.scripts = [reporting("one ", ends=False, last=b": penstock-handed-over\n\n")]
        stack.large.scripts = [reporting("two", ends=True)]
        assert text_of((await stack.call(chat(stream=True))).body) == "one two"
        assert stack.gateway._current().deployments["small"].health.is_usual


async def test_routes_that_do_not_resume_send_and_read_nothing_of_it(tmp_path: Path) -> None:
    async with two(tmp_path, resume="off") as stack:
        stack.small.scripts = [reporting("one ", ends=False)]
        reply = await stack.call(chat(stream=True))
        assert text_of(reply.body) == "one "
        assert "x-penstock-resume" not in stack.small.received[0].headers
        assert stack.large.received == []


async def test_plain_requests_have_no_order(tmp_path: Path) -> None:
    async with two(tmp_path) as stack:
        assert (await stack.call(chat())).status == 200
        assert "x-penstock-resume" not in stack.small.received[0].headers

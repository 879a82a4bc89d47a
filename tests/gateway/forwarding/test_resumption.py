"""Continuations of broken streams: where they go, what they carry, and how they end when nobody takes them."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.forwarding.resumption import MAX_RESUMPTIONS
from tests.gateway.scripted import Received, Script, Wire, chunk
from tests.gateway.stack import NO_EJECTION, Stack, chat, running

KEY = "0123456789abcdef0123456789abcdef"
TEXT_POLICY = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: tiny, continuation: continue_final_message}}
  - {{id: large, url: "unix:{folder}/large.sock", model: tiny{continuation}}}
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [small, large]}}
    resume: {resume}
"""
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


def reporting(*texts: str, ends: bool, digest: str | None = "exact;1;here", last: bytes = b"") -> Script:
    """Stream texts, each followed by the report of a token of that length; then end, or break off behind `last`."""

    async def script(wire: Wire) -> None:
        header = b"" if digest is None else b"x-penstock-resume: %b\r\n" % digest.encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n%btransfer-encoding: chunked\r\n\r\n"
        await wire.send(head % header)
        for text in texts:
            payload = b"data: %b\n\n: penstock-tokens 0 %d\n\n" % (chunk(text), len(text))
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


async def begin_reported(wire: Wire, *texts: str, digest: bytes | None = b"exact;1;here") -> None:
    """Begin a stream with texts, reported where there is a digest."""
    header = b"" if digest is None else b"x-penstock-resume: %b\r\n" % digest
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n%btransfer-encoding: chunked\r\n\r\n"
    await wire.send(head % header)
    for text in texts:
        report = b"" if digest is None else b": penstock-tokens 0 %d\n\n" % len(text)
        payload = b"data: %b\n\n%b" % (chunk(text), report)
        await wire.send(b"%x\r\n%b\r\n" % (len(payload), payload))


def held(*texts: str, digest: bytes | None = b"exact;1;here", is_over: asyncio.Event | None = None) -> Script:
    """Stream texts; then wait until the gateway has closed the connection."""

    async def script(wire: Wire) -> None:
        await begin_reported(wire, *texts, digest=digest)
        await wire.is_gone.wait()
        if is_over is not None:
            is_over.set()

    return script


def text_of(body: bytes) -> str:
    chunks = [json.loads(event[6:]) for event in body.split(b"\n\n") if event.startswith(b"data: {")]
    return "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks if one.get("choices"))


def order_of(request: Received) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(urlsafe_b64decode(request.headers["x-penstock-resume"].partition(".")[0]))
    return found


def begun_of(*token_ids: int) -> dict[str, Any]:
    return {"0": {"token_ids": [*token_ids], "finish": None}}


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.005)


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
        assert second.json == {**first.json, "penstock_choices": begun_of(4, 4)}
        begun, order = order_of(first), order_of(second)
        assert begun == {"seed": begun["seed"], "can_move": True}
        assert (order["seed"], order["id"], order["created"]) == (begun["seed"], "chatcmpl-1", 1)
        assert order["digest"] == "exact;1;here"
        assert await has_ended(stack, "resumed")
        (line,) = stack.lines()
        assert (line["outcome"], line["deployment"], line["attempts"]) == ("completed", "large", 2)


def of_choice(index: int, text: str = "", finish: str | None = None) -> bytes:
    event = json.loads(chunk(text, finish=finish))
    event["choices"][0]["index"] = index
    return json.dumps(event).encode()


async def test_choices_that_have_ended_stay_and_the_others_go_on(tmp_path: Path) -> None:
    """Even where all that the client has seen of the answer is its one choice that ended."""
    ended = b"data: %b\n\n: penstock-tokens 1 7\n\ndata: %b\n\n: penstock-tokens 1 stop 2\n\n"
    handed_over = ended % (of_choice(1, "two"), of_choice(1, finish="stop")) + b": penstock-handed-over\n\n"

    async def rest(wire: Wire) -> None:
        await begin_reported(wire)
        for event in (of_choice(0, "one"), of_choice(0, finish="stop"), b"[DONE]"):
            await wire.event(event)
        await wire.end()

    async with two(tmp_path) as stack:
        stack.small.scripts, stack.large.scripts = [reporting(ends=False, last=handed_over)], [rest]
        reply = await stack.call(chat(stream=True, n=2))
        assert reply.body.endswith(b"data: [DONE]\n\n")
        events = [json.loads(event[6:])["choices"][0] for event in reply.body.split(b"\n\n")[:-2]]
        assert [(one["index"], one["finish_reason"]) for one in events] == [
            (1, None),
            (1, "stop"),
            (0, None),
            (0, "stop"),
        ]
        begun = stack.large.received[0].json["penstock_choices"]
        assert begun == {"1": {"token_ids": [7, 2], "finish": "stop"}}


async def test_a_completions_stream_goes_on_with_its_tokens(tmp_path: Path) -> None:
    async def script(wire: Wire) -> None:
        await begin_reported(wire)
        event = b'data: {"id":"cmpl-1","created":1,"choices":[{"index":0,"text":"One","finish_reason":null}]}\n\n'
        event += b": penstock-tokens 0 5\n\n"
        await wire.send(b"%x\r\n%b\r\n" % (len(event), event))
        wire.abort()

    async def rest(wire: Wire) -> None:
        await begin_reported(wire)
        await wire.event(b'{"id":"cmpl-1","created":1,"choices":[{"index":0,"text":" two","finish_reason":"stop"}]}')
        await wire.event(b"[DONE]")
        await wire.end()

    async with two(tmp_path) as stack:
        stack.small.scripts, stack.large.scripts = [script], [rest]
        body = {"model": "auto", "prompt": "Say", "stream": True}
        reply = await stack.call(body, path="/v1/completions")
        chunks = [json.loads(event[6:]) for event in reply.body.split(b"\n\n")[:-2]]
        assert "".join(one["choices"][0]["text"] for one in chunks) == "One two"
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert stack.large.received[0].json["penstock_choices"] == begun_of(5)


async def test_events_without_a_report_are_computed_again(tmp_path: Path) -> None:
    unreported = b"data: " + chunk("tw") + b"\n\n"
    async with two(tmp_path) as stack:
        stack.small.scripts = [reporting("one ", ends=False, last=unreported)]
        stack.large.scripts = [reporting("two", ends=True)]
        assert text_of((await stack.call(chat(stream=True))).body) == "one two"
        assert stack.large.received[0].json["penstock_choices"] == begun_of(4)


@pytest.mark.parametrize(
    ("end", "script"),
    [
        ("refused", reporting("two", ends=True, digest=None)),
        ("refused", reporting("two", ends=True, digest="exact;other;here")),
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
            stack.small.scripts = [reporting("one ", ends=False, digest="close;1;here")]
            stack.large.scripts = [reporting("two", ends=True, digest="close;1;here")]
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


@asynccontextmanager
async def two_others(
    folder: Path, *, resume: str = "best_effort", continuation: str = ", continuation: trailing_message"
) -> AsyncIterator[Stack]:
    """Two servers that report no tokens."""
    text = TEXT_POLICY.format(folder=folder, resume=resume, continuation=continuation)
    async with running(folder, policy=text, ejection=NO_EJECTION) as stack:
        yield stack


def telling(*texts: str, ends: bool, usage: tuple[int, int] | None = None) -> Script:
    """Stream a role and texts; then end with a usage, or break off."""

    async def script(wire: Wire) -> None:
        await wire.start_stream()
        role = json.loads(chunk(""))
        role["choices"][0]["delta"]["role"] = "assistant"
        await wire.event(json.dumps(role).encode())
        for text in texts:
            await wire.event(chunk(text))
        if not ends:
            wire.abort()
            return
        await wire.event(chunk(finish="stop"))
        if usage is not None:
            await wire.event(chunk(usage=usage))
        await wire.event(b"[DONE]")
        await wire.end()

    return script


GREEDY: dict[str, Any] = {"stream": True, "temperature": 0, "max_tokens": 20}


async def test_greedy_text_of_another_server_goes_on_behind_its_last_word(tmp_path: Path) -> None:
    async with two_others(tmp_path) as stack:
        stack.small.scripts = [telling("One", " two", " th", ends=False)]
        stack.large.scripts = [telling(" th", "ree", " four", ends=True, usage=(11, 4))]
        reply = await stack.call(chat(**GREEDY, stream_options={"include_usage": True}))
        assert text_of(reply.body) == "One two three four"
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert reply.body.count(b'"role"') == 1
        assert b'"usage":{"prompt_tokens":9,"completion_tokens":6,"total_tokens":15}' in reply.body
        (request,) = stack.large.received
        assert request.json["messages"][1:] == [{"role": "assistant", "content": "One two"}]
        assert request.json["max_tokens"] == 18
        assert "continue_final_message" not in request.json
        assert "x-penstock-resume" not in stack.small.received[0].headers
        assert await has_ended(stack, "resumed")
        (line,) = stack.lines()
        assert (line["outcome"], line["deployment"], line["completion_tokens"]) == ("completed", "large", 6)


@pytest.mark.parametrize(
    ("resume", "continuation", "fields"),
    [
        ("exact", ", continuation: trailing_message", GREEDY),
        ("best_effort", "", GREEDY),
        ("best_effort", ", continuation: trailing_message", {**GREEDY, "temperature": 1}),
        ("best_effort", ", continuation: trailing_message", {**GREEDY, "response_format": {"type": "json_object"}}),
        ("best_effort", ", continuation: trailing_message", {**GREEDY, "n": 2}),
        ("best_effort", ", continuation: trailing_message", {**GREEDY, "logprobs": True}),
    ],
)
async def test_any_other_stream_of_another_server_ends_with_an_error_event(
    resume: str, continuation: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    async with two_others(tmp_path, resume=resume, continuation=continuation) as stack:
        stack.small.scripts = [telling("One", " two", ends=False)]
        reply = await stack.call(chat(**fields))
        assert text_of(reply.body) == "One two"
        assert b'"error"' in reply.body
        assert b"[DONE]" not in reply.body
        assert stack.large.received == []


async def test_a_server_that_begins_a_new_message_instead_is_not_taken(tmp_path: Path) -> None:
    async with two_others(tmp_path) as stack:
        stack.small.scripts = [telling("One", " two", " three", ends=False)]
        stack.large.scripts = [telling("One", " two", " three", ends=True)]
        reply = await stack.call(chat(**GREEDY))
        assert text_of(reply.body) == "One two three"
        assert b'"error"' in reply.body
        assert await has_ended(stack, "refused")
        assert stack.gateway._current().deployments["large"].health.is_usual


@pytest.mark.parametrize("last", [b"[DONE]", None])
async def test_an_answer_of_another_server_that_is_whole_is_not_continued(last: bytes | None, tmp_path: Path) -> None:
    async def script(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("One"))
        await wire.event(chunk(finish="stop"))
        if last is not None:
            await wire.event(last)
        await wire.end()

    async with two_others(tmp_path) as stack:
        stack.small.scripts = [script]
        reply = await stack.call(chat(**GREEDY))
        assert text_of(reply.body) == "One"
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert stack.large.received == []


async def test_completions_streams_of_other_servers_end_with_an_error_event(tmp_path: Path) -> None:
    async def script(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(b'{"id":"cmpl-1","choices":[{"index":0,"text":"One two","finish_reason":null}]}')
        wire.abort()

    async with two_others(tmp_path) as stack:
        stack.small.scripts = [script]
        body = {"model": "auto", "prompt": "Say", "stream": True, "temperature": 0}
        reply = await stack.call(body, path="/v1/completions")
        assert b"One two" in reply.body
        assert b'"error"' in reply.body
        assert stack.large.received == []


@pytest.mark.parametrize("is_text", [False, True])
async def test_a_drain_by_an_operator_moves_streams_at_once(is_text: bool, tmp_path: Path) -> None:
    digest = None if is_text else b"exact;1;here"
    is_over = asyncio.Event()
    async with two_others(tmp_path) if is_text else two(tmp_path) as stack:
        stack.small.scripts = [held("one ", "two ", is_over=is_over, digest=digest)]
        stack.large.scripts = [telling(" two ", "three", ends=True) if is_text else reporting("three", ends=True)]
        reading = asyncio.create_task(stack.call(chat(**GREEDY)))
        live = stack.gateway._current().deployments["small"]
        await until(lambda: bool(live.moves))
        drained = await stack.call({"drain": True}, path="/admin/api/deployments/small/drain", admin=True)
        assert drained.status == 200
        reply = await reading
        await is_over.wait()
        assert text_of(reply.body) == "one two three"
        assert b'"error"' not in reply.body
        assert (live.in_flight, live.moves, live.health.is_usual) == (0, set(), True)
        assert await has_ended(stack, "resumed")


async def test_a_deployment_that_leaves_the_policy_passes_its_streams_on(tmp_path: Path) -> None:
    is_over = asyncio.Event()
    async with two(tmp_path) as stack:
        stack.small.scripts = [held("one ", is_over=is_over)]
        stack.large.scripts = [reporting("two", ends=True)]
        reading = asyncio.create_task(stack.call(chat(stream=True)))
        live = stack.gateway._current().deployments["small"]
        await until(lambda: bool(live.moves))
        lines = POLICY.format(folder=tmp_path, resume="exact", other="tiny").splitlines()
        left = "\n".join(line for line in lines if "id: small" not in line).replace("[small, ", "[")
        (tmp_path / "policy.yaml").write_text(left)
        assert text_of((await reading).body) == "one two"
        await is_over.wait()
        assert live.in_flight == 0


async def test_a_drain_leaves_streams_alone_that_no_other_deployment_could_continue(tmp_path: Path) -> None:
    is_over = asyncio.Event()

    async def script(wire: Wire) -> None:
        await begin_reported(wire, "one ")
        await is_over.wait()
        await wire.event(chunk(finish="stop"))
        await wire.event(b"[DONE]")
        await wire.end()

    async with two(tmp_path, other="large") as stack:
        stack.small.scripts = [script]
        reading = asyncio.create_task(stack.call(chat(stream=True)))
        live = stack.gateway._current().deployments["small"]
        await until(lambda: bool(live.moves))
        live.drain(is_draining=True)
        is_over.set()
        assert text_of((await reading).body) == "one "
        assert stack.large.received == []
        assert not live.moves


async def test_a_stream_that_no_deployment_takes_goes_on_at_the_one_that_drains(tmp_path: Path) -> None:
    async with two(tmp_path) as stack:
        stack.small.scripts = [
            held("one "),
            reporting("two", ends=True),
        ]
        stack.large.scripts = [reporting("two", ends=True, digest="exact;other;here")]
        reading = asyncio.create_task(stack.call(chat(stream=True)))
        live = stack.gateway._current().deployments["small"]
        await until(lambda: bool(live.moves))
        live.drain(is_draining=True)
        reply = await reading
        assert text_of(reply.body) == "one two"
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert len(stack.large.received) == 1

"""Answers on their way to the client: broken ones are reported, and only whole ones count as whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.forwarding.test_error_mapping import HEARTBEATS, beats
from tests.gateway.quota_policy import key_of, quota_policy
from tests.gateway.scripted import COMPLETION, Wire, chunk
from tests.gateway.stack import chat, encode, running


async def reset_after_text(wire: Wire) -> None:
    await wire.start_stream()
    await wire.event(chunk("hel"))
    await asyncio.sleep(0.02)
    wire.abort()


async def end_without_finish(wire: Wire) -> None:
    await wire.start_stream()
    await wire.event(chunk("hel"))
    await wire.end()


async def finish_without_done(wire: Wire) -> None:
    await wire.start_stream()
    await wire.event(chunk("hel"))
    await wire.event(chunk(finish="stop"))
    await wire.end()


async def error_event(wire: Wire) -> None:
    await wire.start_stream()
    await wire.event(chunk("hel"))
    await wire.event(b'{"error":{"message":"engine died","type":"api_error","param":null,"code":"engine_error"}}')
    await wire.end()


async def stall(wire: Wire) -> None:
    await wire.start_stream()
    await wire.event(chunk("hel"))
    await wire.is_gone.wait()


async def heartbeats_only(wire: Wire) -> None:
    await wire.start_stream()
    await wire.event(chunk("hel"))
    while not wire.is_gone.is_set():
        await wire.send(b"6\r\n: hb\n\n\r\n")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("script", [reset_after_text, end_without_finish])
async def test_a_stream_that_breaks_off_ends_with_an_error_event(tmp_path: Path, script: Callable[[Wire], Any]) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [script]
        reply = await stack.call(chat("solo", stream=True))

        first, last, rest = reply.body.split(b"\n\n")
        assert reply.status == 200
        assert first == b"data: " + chunk("hel")
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "upstream_error"
        assert rest == b""
        assert b"[DONE]" not in reply.body
        line = stack.lines()[0]
        assert (line["outcome"], line["code"]) == ("upstream_failed", "upstream_error")


async def test_an_unfinished_stream_is_flagged_incomplete(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [end_without_finish, finish_without_done]
        await stack.call(chat("solo", stream=True))
        reply = await stack.call(chat("solo", stream=True))

        assert b"error" not in reply.body
        assert reply.body.endswith(b"\n\ndata: [DONE]\n\n")  # it stated why it ended, and left the mark out
        assert [line.get("is_incomplete") for line in stack.lines()] == [True, None]


async def test_an_error_event_of_the_upstream_is_passed_on_once(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [error_event]
        reply = await stack.call(chat("solo", stream=True))

        assert reply.body.count(b'"error"') == 1
        assert b"engine died" in reply.body
        line = stack.lines()[0]
        assert (line["outcome"], line["is_incomplete"]) == ("upstream_failed", True)


@pytest.mark.parametrize("script", [stall, heartbeats_only, *(beats(chunk("hel"), beat) for beat in HEARTBEATS)])
async def test_a_stalled_stream_ends_with_a_timeout_event(tmp_path: Path, script: Callable[[Wire], Any]) -> None:
    async with running(tmp_path, inter_token_ms=80) as stack:
        stack.small.scripts = [script]
        reply = await stack.call(chat("solo", stream=True))

        assert reply.status == 200
        assert json.loads(reply.body.rstrip().split(b"data: ")[-1])["error"]["code"] == "upstream_timeout"
        await asyncio.wait_for(stack.small.gone.wait(), 1)


async def error_event_and_done(wire: Wire) -> None:
    await wire.start_stream()
    await wire.event(chunk("hel"))
    await wire.event(b'{"error":{"message":"engine died","type":"api_error","param":null,"code":"engine_error"}}')
    await wire.event(b"[DONE]")
    await wire.end()


async def test_an_error_event_counts_whatever_comes_after_it(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [error_event_and_done]
        await stack.call(chat("solo", stream=True))

        line = stack.lines()[0]
        assert (line["outcome"], line["is_incomplete"]) == ("upstream_failed", True)


async def test_the_connection_is_closed_after_an_error_event_of_the_upstream(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [error_event]
        requested = encode(chat("solo", stream=True), headers={"connection": "keep-alive"})
        reader, writer = await stack.connect()
        writer.write(requested + requested)
        raw = await asyncio.wait_for(reader.read(), 2)
        writer.close()

        assert raw.count(b"HTTP/1.1 ") == 1
        assert b"[DONE]" not in raw


async def test_a_line_that_never_ends_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault row 21, in a stream: bounded, and an error event at its end."""
    monkeypatch.setattr("gateway.forwarding.stream_head.MAX_EVENT_BYTES", 1_000_000)
    sent = 0

    async def endless(wire: Wire) -> None:
        nonlocal sent
        await wire.start_stream()
        await wire.event(chunk("hel"))
        while sent < 100_000_000 and not wire.is_gone.is_set():
            await wire.send(b"10000\r\n" + b"y" * 65_536 + b"\r\n")
            sent += 65_536

    async with running(tmp_path) as stack:
        stack.small.scripts = [endless]
        reply = await stack.call(chat("solo", stream=True))

        assert json.loads(reply.body.rstrip().split(b"data: ")[-1])["error"]["code"] == "upstream_error"
        assert len(reply.body) < 2_000_000
        await asyncio.wait_for(stack.small.gone.wait(), 2)


async def test_the_connection_is_closed_after_an_error_event(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [end_without_finish]
        requested = encode(chat("solo", stream=True), headers={"connection": "keep-alive"})
        reader, writer = await stack.connect()
        writer.write(requested + requested)  # the second would be answered on a connection that goes on
        raw = await asyncio.wait_for(reader.read(), 2)  # returns at the end of the connection only
        writer.close()

        assert raw.count(b"HTTP/1.1 ") == 1
        assert raw.endswith(b"}}\n\n\r\n0\r\n\r\n")  # the error event is the last thing in a stream that is well framed
        assert b"[DONE]" not in raw
        assert len(stack.small.received) == 1


async def test_heartbeats_do_not_prolong_a_stalled_stream_behind_another_server(tmp_path: Path) -> None:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async with running(tmp_path, inter_token_ms=80) as stack:
        stack.small.scripts = [heartbeats_only]
        body = json.dumps(chat("solo", stream=True)).encode()
        queue: asyncio.Queue[Any] = asyncio.Queue()
        queue.put_nowait({"type": "http.request", "body": body, "more_body": False})
        scope = {"type": "http", "headers": [(b"content-type", b"application/json")], "client": ("127.0.0.1", 1)}
        await asyncio.wait_for(stack.gateway.pipeline(scope, queue.get, send), 2)

        assert b"upstream_timeout" in messages[-1]["body"]
        assert not messages[-1]["more_body"]
        assert stack.lines()[0]["outcome"] == "upstream_timeout"


async def test_a_slow_reader_pauses_the_upstream_and_gets_everything(tmp_path: Path) -> None:
    text = "x" * 20_000

    async def flood(wire: Wire) -> None:
        await wire.start_stream()
        for _ in range(200):
            await wire.event(chunk(text))
        await wire.event(chunk(finish="stop"))
        await wire.event(b"[DONE]")
        await wire.end()

    async with running(tmp_path) as stack:
        stack.small.scripts = [flood]
        reader, writer = await stack.connect()
        writer.write(encode(chat(stream=True)))
        await asyncio.sleep(0.1)
        received = b""
        while data := await asyncio.wait_for(reader.read(65_536), 5):
            received += data
            await asyncio.sleep(0.0005)

        assert received.count(text.encode()) == 200
        assert b"data: [DONE]" in received
        writer.close()


def answering(body: bytes) -> Callable[[Wire], Any]:
    """A script with this whole answer."""
    return lambda wire: wire.answer(body)


def sending(*events: bytes, mark: bytes = b"") -> Callable[[Wire], Any]:
    """A script that streams these events and ends properly; the bytes of a mark come one by one before them."""

    async def script(wire: Wire) -> None:
        await wire.start_stream()
        for at in range(len(mark)):
            await wire.send(b"1\r\n%b\r\n" % mark[at : at + 1])
            await asyncio.sleep(0.01)
        for data in events:
            await wire.event(data)
        await wire.end()

    return script


@pytest.mark.parametrize(
    "malformed", [chunk("lo")[:-9], chunk("X").replace(b"X", b"a\xff\xfeb"), b"Internal Server Error"]
)
async def test_an_event_that_is_no_json_ends_a_stream_with_an_error_event(tmp_path: Path, malformed: bytes) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [sending(chunk("hel"), malformed, chunk("p", finish="stop"), b"[DONE]")]
        reply = await stack.call(chat("solo", stream=True))
        assert b"[DONE]" not in reply.body
        error = json.loads(reply.body.rstrip().split(b"data: ")[-1])["error"]
        assert (error["code"], "no JSON" in error["message"]) == ("upstream_error", True)
        line = stack.lines()[0]
        assert (line["outcome"], line["is_incomplete"]) == ("upstream_failed", True)


async def test_a_deployment_that_sends_no_json_is_ejected(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [sending(chunk("hel"), b"oops", b"[DONE]")] * 5
        for _ in range(5):
            await stack.call(chat("auto", stream=True))
        assert await stack.metric("penstock_ejections_total", deployment="small", reason="broken") == 1


@pytest.mark.parametrize("malformed", [chunk("")[:-9], b"Internal Server Error", b'{"own":"\xff"}'])
async def test_a_stream_that_begins_with_no_json_goes_to_another_deployment(tmp_path: Path, malformed: bytes) -> None:
    async def script(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(malformed)
        await wire.is_gone.wait()

    async with running(tmp_path) as stack:
        stack.small.scripts = [script]
        stack.large.scripts = [sending(chunk("hello"), chunk(finish="stop"), b"[DONE]")]
        reply = await stack.call(chat("auto", stream=True))
        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "large")
        assert reply.body.endswith(b"data: [DONE]\n\n")


async def test_a_plain_answer_that_is_no_utf_8_is_a_502(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [answering(COMPLETION.replace(b"hello", b"a\xff\xfeb"))]
        reply = await stack.call(chat("solo"))
        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert stack.lines()[0]["outcome"] == "upstream_failed"


async def test_a_plain_answer_with_what_is_no_number_becomes_json(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [answering(COMPLETION[:-1] + b',"own":[NaN,-Infinity,1.50]}')]
        reply = await stack.call(chat("solo"))
        assert reply.status == 200
        assert reply.body.endswith(b',"own":[null,null,1.50]}')


async def test_a_byte_order_mark_before_a_stream_does_not_reach_the_client(tmp_path: Path) -> None:
    events = [chunk("hello"), chunk(finish="stop"), b"[DONE]"]
    async with running(tmp_path) as stack:
        stack.small.scripts = [sending(*events, mark=b"\xef\xbb\xbf")]
        reply = await stack.call(chat("solo", stream=True))
        assert reply.body == b"".join(b"data: %b\n\n" % data for data in events)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_impossible_usage_is_replaced_by_the_estimate(tmp_path: Path, is_stream: bool) -> None:
    absurd = {"prompt_tokens": 10**30, "completion_tokens": 2**63, "total_tokens": 2**64}
    answer = json.dumps({**json.loads(COMPLETION), "usage": absurd}).encode()
    last = json.dumps({"choices": [], "usage": absurd}).encode()
    script = sending(chunk("hello"), chunk(finish="stop"), last, b"[DONE]") if is_stream else answering(answer)
    policy = quota_policy(tmp_path, {"small": "{budget: {tokens_per_day: 5000}}"})
    async with running(tmp_path, policy=policy) as stack:
        stack.small.scripts = [script] * 4
        for _ in range(4):
            reply = await stack.call(chat("solo", stream=is_stream, max_tokens=20), headers=key_of("small"))
            assert (reply.status, b'"error"' in reply.body) == (200, False)
        assert [line.get("prompt_tokens") for line in stack.lines()] == [None] * 4

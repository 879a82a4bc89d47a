"""Answers on their way to the client: broken ones are reported, and only whole ones count as whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.forwarding.test_error_mapping import HEARTBEATS, beats
from tests.gateway.scripted import Wire, chunk
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

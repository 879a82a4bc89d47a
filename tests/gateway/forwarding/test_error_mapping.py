"""What a client gets when the upstream fails, at every point where it can."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.scripted import COMPLETION, Wire, chunk, hang
from tests.gateway.stack import NO_EJECTION, chat, encode, running


def status(code: int, **headers: str) -> Callable[[Wire], Any]:
    async def script(wire: Wire) -> None:
        body = b'{"error":{"message":"key sk-secret1234567890","type":"x","param":null,"code":"upstream_words"}}'
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await wire.answer(body, code, {"x-penstock-error-code": "upstream_words", **named})

    return script


async def reset_before_head(wire: Wire) -> None:
    wire.abort()


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


async def short_body(wire: Wire) -> None:
    await wire.send(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"id":1')
    wire.writer.close()


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


async def test_a_dead_deployment_is_replaced_before_the_first_byte(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.small.close()
        live = stack.gateway._current().deployments["small"]
        live.is_ready = True

        reply = await stack.ask(chat())

        assert reply.status == 200
        assert reply.headers["x-penstock-deployment"] == "large"
        assert stack.large.received[0].json["model"] == "big"
        assert stack.lines()[0]["attempts"] == 2
        assert not live.is_ready
        metrics = (await stack.get("/metrics", admin=True)).body.decode()
        assert 'penstock_retries_total{deployment="small"} 1.0' in metrics


async def test_a_dead_only_candidate_is_a_502(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.small.close()
        stack.gateway._current().deployments["small"].is_ready = True

        reply = await stack.ask(chat("solo"))

        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert str(tmp_path) not in reply.error["message"]


@pytest.mark.parametrize("code", [500, 502, 503, 529])
async def test_a_server_error_is_retried_once_elsewhere(tmp_path: Path, code: int) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [status(code)]
        assert (await stack.ask(chat())).status == 200

        stack.small.scripts, stack.large.scripts = [status(code)], [status(code)]
        reply = await stack.ask(chat())
        assert reply.status == (503 if code in (503, 529) else 502)
        assert len(stack.small.received) == len(stack.large.received) == 2


async def test_an_upstreams_error_is_never_echoed(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        for code in (500, 401, 403):
            stack.small.scripts = [status(code)]
            reply = await stack.ask(chat("solo"))

            assert (reply.status, reply.error["code"], reply.error["type"]) == (502, "upstream_error", "api_error")
            assert b"sk-secret" not in reply.body
            assert reply.headers["x-penstock-error-code"] == "upstream_error"


async def test_a_client_error_of_the_upstream_is_passed_on_as_it_is(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [status(429, retry_after="7")]
        reply = await stack.ask(chat("solo"))

        assert (reply.status, reply.error["code"]) == (429, "upstream_words")
        assert reply.headers["retry-after"] == "7"
        assert "x-penstock-error-code" not in reply.headers
        assert stack.lines()[0]["outcome"] == "rejected"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>nothing here</html>", "Deployment 'small' refused the request with status 404."),
        (b"", "Deployment 'small' refused the request with status 404."),
        (b'["odd"]', "Deployment 'small' refused the request with status 404."),
        (b'{"error":{"message":"no such model","code":404}}', "no such model"),
        (b'{"error":"no such model"}', "no such model"),
        (b'{"object":"error","message":"no such model","type":"NotFoundError","code":404}', "no such model"),
        (b'[{"error":{"code":404,"message":"no such model","status":"NOT_FOUND"}}]', "no such model"),
        (b'[{"error":{"message":"no such model","type":"x","param":null,"code":null}}]', "no such model"),
        (b'{"error":{"message":{"detail":"no such model"},"type":"x","param":null,"code":null}}', "no such model"),
        (b'{"detail":"no such model"}', "no such model"),
        (b'{"detail":[{"loc":["body"],"msg":"no such model","type":"y"}]}', "no such model"),
        (b'{"errors":[{"message":"no such model"}],"success":false}', "no such model"),
        (b'{"Message":"no such model"}', "no such model"),
        (b'{"error":{},"message":"no such model"}', "no such model"),
        (b'\xef\xbb\xbf{"error":{"message":"no such model"}}', "no such model"),
        (b'{"error":{"message":"no such model","param":NaN,"type":"x","code":1}}', "no such model"),
        (b'{"error":{"message":"no such model","code":123456789012345678901234567890}}', "no such model"),
    ],
)
async def test_a_client_error_of_the_upstream_without_the_envelope_is_put_into_it(
    tmp_path: Path, body: bytes, message: str
) -> None:
    async def refuse(wire: Wire) -> None:
        await wire.answer(body, 404, {"content-type": "text/html"})

    async with running(tmp_path) as stack:
        stack.small.scripts = [refuse]
        reply = await stack.ask(chat("solo"))

        assert (reply.status, reply.headers["content-type"]) == (404, "application/json")
        assert set(reply.error) == {"message", "type", "param", "code"}
        assert reply.error["message"] == message
        assert "x-penstock-error-code" not in reply.headers


def answers(body: bytes, code: int = 200, kind: str = "application/json") -> Callable[[Wire], Any]:
    async def script(wire: Wire) -> None:
        await wire.answer(body, code, {"content-type": kind})

    return script


NO_COMPLETIONS = [
    answers(b""),
    answers(b"<html>a web server</html>", kind="text/html"),
    answers(b"[]"),
    answers(b'{"error":{"message":"out of memory","type":"x","param":null,"code":"y"}}'),
    answers(b"", 204),
    answers(b"", 302),
]


@pytest.mark.parametrize("script", NO_COMPLETIONS)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_answer_that_is_no_completion_is_a_502(
    tmp_path: Path, script: Callable[[Wire], Any], is_stream: bool
) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [script]
        reply = await stack.ask(chat("solo", stream=is_stream))

        assert (reply.status, reply.error["code"], reply.error["type"]) == (502, "upstream_error", "api_error")
        assert stack.lines()[0]["outcome"] == "upstream_failed"
        assert (await stack.ask(chat("solo"))).status == 200


async def test_a_whole_answer_where_a_stream_was_asked_for_is_a_502(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [answers(COMPLETION)]
        reply = await stack.ask(chat("solo", stream=True))

        assert (reply.status, reply.error["code"]) == (502, "upstream_error")


@pytest.mark.parametrize("script", NO_COMPLETIONS)
async def test_another_deployment_answers_for_one_that_gives_no_completions(
    tmp_path: Path, script: Callable[[Wire], Any]
) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts, stack.large.scripts = [script], [script]
        for stream in (False, True):
            reply = await stack.ask(chat(stream=stream))

            assert reply.status == (502 if not stream else 200)
        assert len(stack.small.received) + len(stack.large.received) == 3


async def test_an_overloaded_upstream_sheds_with_its_own_retry_after(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [status(503, retry_after="9")]
        reply = await stack.ask(chat("solo"))

        assert (reply.status, reply.error["code"]) == (503, "server_is_overloaded")
        assert reply.headers["retry-after"] == "9"
        assert reply.headers["x-penstock-shed-reason"] == "overload"


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_reset_before_the_answer_is_a_502(tmp_path: Path, is_stream: bool) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [reset_before_head] * 2
        reply = await stack.ask(chat("solo", stream=is_stream))

        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert stack.lines()[0]["outcome"] == "upstream_failed"


async def test_a_plain_answer_that_breaks_off_is_a_502(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [short_body]
        reply = await stack.ask(chat("solo"))

        assert (reply.status, reply.error["code"]) == (502, "upstream_error")


@pytest.mark.parametrize("script", [reset_after_text, end_without_finish])
async def test_a_stream_that_breaks_off_ends_with_an_error_event(tmp_path: Path, script: Callable[[Wire], Any]) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [script]
        reply = await stack.ask(chat("solo", stream=True))

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
        await stack.ask(chat("solo", stream=True))
        reply = await stack.ask(chat("solo", stream=True))

        assert b"error" not in reply.body
        assert reply.body.endswith(b"\n\ndata: [DONE]\n\n")  # it said why it ended, and left the mark out
        assert [line.get("is_incomplete") for line in stack.lines()] == [True, None]


async def test_an_error_event_of_the_upstream_is_passed_on_once(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [error_event]
        reply = await stack.ask(chat("solo", stream=True))

        assert reply.body.count(b'"error"') == 1
        assert b"engine died" in reply.body
        line = stack.lines()[0]
        assert (line["outcome"], line["is_incomplete"]) == ("upstream_failed", True)


async def test_an_upstream_that_never_answers_is_a_504(tmp_path: Path) -> None:
    async with running(tmp_path, first_token_ms=60) as stack:
        stack.small.scripts = [hang]
        reply = await stack.ask(chat("solo", stream=True))

        assert (reply.status, reply.error["code"]) == (504, "upstream_timeout")
        await asyncio.wait_for(stack.small.gone.wait(), 1)
        assert stack.lines()[0]["outcome"] == "upstream_timeout"


def beats(first: bytes | None, heartbeat: bytes) -> Callable[[Wire], Any]:
    """Endless heartbeats after the first event."""

    async def script(wire: Wire) -> None:
        await wire.start_stream()
        if first is not None:
            await wire.event(first)
        while not wire.is_gone.is_set():
            await wire.send(b"%x\r\n%b\r\n" % (len(heartbeat), heartbeat))
            await asyncio.sleep(0.02)

    return script


HEARTBEATS = [
    b": hb\n\n",
    b"data:\n\n",
    b"id: 1\nretry: 5\n\n",
    b'event: ping\ndata: {"type":"ping"}\n\n',
    b"data: {}\n\n",
    b'data: {"id":"x","choices":[]}\n\n',
]


@pytest.mark.parametrize("heartbeat", HEARTBEATS)
@pytest.mark.parametrize("first", [None, chunk("")])
async def test_another_deployment_answers_for_one_that_sends_heartbeats_only(
    tmp_path: Path, heartbeat: bytes, first: bytes | None
) -> None:
    async with running(tmp_path, first_token_ms=150, inter_token_ms=100) as stack:
        stack.small.scripts = [beats(first, heartbeat)]
        reply = await stack.ask(chat(stream=True))

        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "large")
        assert reply.body.endswith(b"[DONE]\n\n")
        await asyncio.wait_for(stack.small.gone.wait(), 1)


async def test_an_answer_whose_pieces_have_no_text_yet_is_alive(tmp_path: Path) -> None:
    async def think(wire: Wire) -> None:
        await wire.start_stream()
        for _ in range(10):
            await wire.event(chunk(""))
            await asyncio.sleep(0.05)
        await wire.event(chunk("hello", finish="stop"))
        await wire.end()

    async with running(tmp_path, first_token_ms=300, inter_token_ms=300) as stack:
        stack.small.scripts = [think]
        reply = await stack.ask(chat(stream=True))

        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "small")
        assert b"hello" in reply.body


@pytest.mark.parametrize("script", [stall, heartbeats_only, *(beats(chunk("hel"), beat) for beat in HEARTBEATS)])
async def test_a_stalled_stream_ends_with_a_timeout_event(tmp_path: Path, script: Callable[[Wire], Any]) -> None:
    async with running(tmp_path, inter_token_ms=80) as stack:
        stack.small.scripts = [script]
        reply = await stack.ask(chat("solo", stream=True))

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
        await stack.ask(chat("solo", stream=True))

        line = stack.lines()[0]
        assert (line["outcome"], line["is_incomplete"]) == ("upstream_failed", True)


async def test_the_connection_is_closed_after_an_error_event_of_the_upstream(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [error_event]
        asked = encode(chat("solo", stream=True), headers={"connection": "keep-alive"})
        reader, writer = await stack.connect()
        writer.write(asked + asked)
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
        reply = await stack.ask(chat("solo", stream=True))

        assert json.loads(reply.body.rstrip().split(b"data: ")[-1])["error"]["code"] == "upstream_error"
        assert len(reply.body) < 2_000_000
        await asyncio.wait_for(stack.small.gone.wait(), 2)


async def test_the_connection_is_closed_after_an_error_event(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [end_without_finish]
        asked = encode(chat("solo", stream=True), headers={"connection": "keep-alive"})
        reader, writer = await stack.connect()
        writer.write(asked + asked)  # the second would be answered on a connection that goes on
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


async def test_an_upstream_that_dies_before_its_first_event_can_still_be_replaced_by_a_status(tmp_path: Path) -> None:
    async def head_only(wire: Wire) -> None:
        await wire.start_stream()
        await asyncio.sleep(0.02)
        wire.abort()

    async with running(tmp_path) as stack:
        stack.small.scripts = [head_only]
        reply = await stack.ask(chat("solo", stream=True))

        assert reply.status == 502


async def test_no_ready_deployment_sheds_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        for live in stack.gateway._current().deployments.values():
            live.is_ready = False

        reply = await stack.ask(chat())

        assert (reply.status, reply.headers["x-penstock-shed-reason"]) == (503, "overload")


async def test_the_retry_budget_bounds_second_attempts(tmp_path: Path) -> None:
    async with running(tmp_path, ejection=NO_EJECTION) as stack:
        stack.small.otherwise = status(500)
        for _ in range(30):
            await stack.ask(chat())

        assert 10 <= len(stack.large.received) <= 14  # the reserve of 10, and a tenth of 30


async def test_an_answer_far_beyond_a_normal_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.forwarding.attempt.MAX_PLAIN_BYTES", 100)
    async with running(tmp_path) as stack:
        assert len(COMPLETION) > 100
        assert (await stack.ask(chat("solo"))).status == 502

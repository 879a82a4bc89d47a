"""What a client gets when the upstream fails, at every point where it can."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.deployments.health.ejection import EjectionRules
from tests.gateway.scripted import COMPLETION, Wire, chunk, hang
from tests.gateway.stack import NO_EJECTION, chat, running


def status(code: int, **headers: str) -> Callable[[Wire], Any]:
    async def script(wire: Wire) -> None:
        body = b'{"error":{"message":"key sk-secret1234567890","type":"x","param":null,"code":"upstream_words"}}'
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await wire.answer(body, code, {"x-penstock-error-code": "upstream_words", **named})

    return script


async def reset_before_head(wire: Wire) -> None:
    wire.abort()


async def short_body(wire: Wire) -> None:
    await wire.send(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"id":1')
    wire.writer.close()


async def test_an_upstreams_error_is_never_echoed(tmp_path: Path) -> None:
    async with running(tmp_path, ejection=NO_EJECTION) as stack:
        for code in (500, 401, 403, 404, 405):
            stack.small.scripts = [status(code)]
            reply = await stack.call(chat("solo"))

            assert (reply.status, reply.error["code"], reply.error["type"]) == (502, "upstream_error", "api_error")
            assert b"sk-secret" not in reply.body
            assert reply.headers["x-penstock-error-code"] == "upstream_error"


@pytest.mark.parametrize("code", [404, 405])
async def test_a_wrong_path_or_model_name_of_the_policy_moves_the_request_and_ejects_the_deployment(
    tmp_path: Path, code: int
) -> None:
    async with running(tmp_path, ejection=EjectionRules(consecutive_failures=3, min_exchanges=100)) as stack:
        stack.small.otherwise = status(code)
        for _ in range(6):
            reply = await stack.call(chat())
            assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "large")

        assert len(stack.small.received) == 3


async def test_without_another_deployment_a_wrong_path_is_a_502_for_the_operator(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [status(404)]
        reply = await stack.call(chat("solo"))

        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert reply.error["message"] == "Deployment 'small' has no such model or path. Inform the operator."
        assert stack.lines()[0]["outcome"] == "upstream_failed"


async def test_a_missing_file_of_the_client_is_its_own_404_and_no_failure_of_the_deployment(tmp_path: Path) -> None:
    content = [{"type": "text", "text": "read"}, {"type": "file", "file": {"file_id": "file-1"}}]
    async with running(tmp_path, ejection=EjectionRules(consecutive_failures=1)) as stack:
        stack.small.otherwise = status(404)
        for _ in range(2):
            reply = await stack.call(chat(messages=[{"role": "user", "content": content}]))
            assert (reply.status, reply.error["code"]) == (404, "upstream_words")


async def test_a_missing_adapter_is_the_clients_own_404_and_no_failure_of_the_deployment(tmp_path: Path) -> None:
    async with running(tmp_path, ejection=EjectionRules(consecutive_failures=1)) as stack:
        stack.gateway.policy.current.deployments["small"].note_adapters(["french"])
        stack.small.otherwise = status(404)
        for _ in range(2):
            reply = await stack.call(chat("auto:french"))
            assert (reply.status, reply.error["code"]) == (404, "upstream_words")


async def test_a_deployment_without_the_endpoint_of_completions_is_left_for_it_and_not_ejected(tmp_path: Path) -> None:
    async with running(tmp_path, ejection=EjectionRules(consecutive_failures=1)) as stack:
        for _ in range(2):
            stack.small.scripts = [status(404)]
            reply = await stack.call({"model": "solo", "prompt": "hi"}, path="/v1/completions")
            assert (reply.status, reply.error["code"]) == (502, "upstream_error")

        assert (await stack.call(chat("solo"))).status == 200


async def test_a_client_error_of_the_upstream_is_passed_on_as_it_is(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [status(429, retry_after="7")]
        reply = await stack.call(chat("solo"))

        assert (reply.status, reply.error["code"]) == (429, "upstream_words")
        assert reply.headers["retry-after"] == "7"
        assert "x-penstock-error-code" not in reply.headers
        assert stack.lines()[0]["outcome"] == "rejected"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>nothing here</html>", "Deployment 'small' refused the request with status 400."),
        (b"", "Deployment 'small' refused the request with status 400."),
        (b'["odd"]', "Deployment 'small' refused the request with status 400."),
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
        await wire.answer(body, 400, {"content-type": "text/html"})

    async with running(tmp_path) as stack:
        stack.small.scripts = [refuse]
        reply = await stack.call(chat("solo"))

        assert (reply.status, reply.headers["content-type"]) == (400, "application/json")
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
        reply = await stack.call(chat("solo", stream=is_stream))

        assert (reply.status, reply.error["code"], reply.error["type"]) == (502, "upstream_error", "api_error")
        assert stack.lines()[0]["outcome"] == "upstream_failed"
        assert (await stack.call(chat("solo"))).status == 200


async def test_a_whole_answer_where_a_stream_was_requested_is_a_502(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [answers(COMPLETION)]
        reply = await stack.call(chat("solo", stream=True))

        assert (reply.status, reply.error["code"]) == (502, "upstream_error")


async def test_an_overloaded_upstream_sheds_with_its_own_retry_after(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [status(503, retry_after="9")]
        reply = await stack.call(chat("solo"))

        assert (reply.status, reply.error["code"]) == (503, "server_is_overloaded")
        assert reply.headers["retry-after"] == "9"
        assert reply.headers["x-penstock-shed-reason"] == "overload"


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_reset_before_the_answer_is_a_502(tmp_path: Path, is_stream: bool) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [reset_before_head] * 2
        reply = await stack.call(chat("solo", stream=is_stream))

        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert stack.lines()[0]["outcome"] == "upstream_failed"


async def test_a_plain_answer_that_breaks_off_is_a_502(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [short_body]
        reply = await stack.call(chat("solo"))

        assert (reply.status, reply.error["code"]) == (502, "upstream_error")


async def test_an_upstream_that_never_answers_is_a_504(tmp_path: Path) -> None:
    async with running(tmp_path, first_token_ms=60) as stack:
        stack.small.scripts = [hang]
        reply = await stack.call(chat("solo", stream=True))

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
        reply = await stack.call(chat(stream=True))

        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "small")
        assert b"hello" in reply.body


async def test_an_answer_far_beyond_a_normal_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.forwarding.whole_answers.MAX_PLAIN_BYTES", 100)
    async with running(tmp_path) as stack:
        assert len(COMPLETION) > 100
        assert (await stack.call(chat("solo"))).status == 502

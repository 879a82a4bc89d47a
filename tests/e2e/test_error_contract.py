"""The wire's table of errors, row by row: status, type, code, and the headers that go with them."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Stack
from tests.e2e.raw import RawReply, chat, request, send_raw
from tests.gateway.scripted import COMPLETION, Wire, hang
from tests.gateway.stack import Reply, policy_text, running

pytestmark = pytest.mark.e2e

KEY = "sk-penstock-errors-0123456789"
REJECTED = "invalid_request_error"
BUSY = "service_unavailable_error"
SHED_HEADERS = {"retry-after", "retry-after-ms", "x-should-retry", "x-penstock-shed-reason"}
MIB = 1024 * 1024


def assert_row(reply: RawReply | Reply, status: int, kind: str, code: str, *, by_gateway: bool = True) -> None:
    """One row of the table: the envelope and what its headers repeat."""
    assert reply.status == status, reply.body[:300]
    error = reply.error
    assert {"message", "type", "param", "code"} == error.keys() - {"degraded"}
    assert (error["type"], error["code"]) == (kind, code)
    assert error["message"]
    assert reply.headers["x-request-id"].startswith("req_")
    assert reply.headers.get("x-penstock-error-code") == (code if by_gateway else None)
    assert ("degraded" in error) == (code == "server_is_overloaded")


def assert_shed(reply: RawReply | Reply, reason: str, *, should_retry: bool) -> None:
    """A refusal for load, with when to come back and what would have been admitted."""
    assert_row(reply, 503, BUSY, "server_is_overloaded")
    assert reply.headers.keys() >= SHED_HEADERS
    assert reply.headers["x-penstock-shed-reason"] == reply.error["degraded"]["reason"] == reason
    assert reply.headers["x-should-retry"] == ("true" if should_retry else "false")
    assert 1 <= int(reply.headers["retry-after"]) <= 60
    assert reply.error["degraded"]["hint"]


BAD_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"temperature": 3}, "invalid_value", "temperature"),
    ({"max_tokens": 0}, "invalid_value", "max_tokens"),
    ({"messages": []}, "invalid_value", "messages"),
    ({"messages": [{"role": "king", "content": "x"}]}, "invalid_value", "messages[0].role"),
    ({"api_base": "http://x"}, "unsupported_parameter", "api_base"),
    ({"base_url": "http://x"}, "unsupported_parameter", "base_url"),
    ({"custom_host": "x"}, "unsupported_parameter", "custom_host"),
    ({"chat_template": "x"}, "unsupported_parameter", "chat_template"),
]


@pytest.mark.parametrize(("fields", "code", "param"), BAD_FIELDS)
def test_a_bad_field_is_400_and_named(stack: Stack, fields: dict[str, Any], code: str, param: str) -> None:
    reply = send_raw(stack.url, request(chat() | fields))
    assert_row(reply, 400, REJECTED, code)
    assert reply.error["param"] == param
    assert param in reply.error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": "auto", "model": "auto", "messages": []}', b"\xff"])
def test_bad_json_is_400(stack: Stack, body: bytes) -> None:
    assert_row(send_raw(stack.url, request(body)), 400, REJECTED, "invalid_json")


def test_what_the_engine_cannot_do_is_400_with_the_field_and_stated_by_the_engine(stack: Stack) -> None:
    audio = [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]
    reply = send_raw(stack.url, request(chat(audio)))
    assert reply.status == 400
    assert reply.error["type"] == REJECTED
    assert reply.error["param"].startswith("messages[0].content")
    assert "x-penstock-error-code" not in reply.headers


@pytest.mark.parametrize("model", ["penstock-small", "auto"])
def test_a_prompt_too_long_for_every_candidate_is_400(stack: Stack, model: str) -> None:
    headers = {"x-penstock-trim": "off"}
    reply = send_raw(stack.url, request(chat("word " * 20_000, model=model), headers=headers))
    assert_row(reply, 400, REJECTED, "context_length_exceeded")


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (request(chat(model="nobody")), 404, "model_not_found"),
        (request(chat(), path="/v1/nowhere"), 404, "not_found"),
        (request(method="GET"), 405, "method_not_allowed"),
        (request(chat(), path="/v1/models"), 405, "method_not_allowed"),
        (request(chat(), headers={"content-type": "text/plain"}), 415, "unsupported_media_type"),
        (request(chat(), headers={"content-encoding": "gzip"}), 415, "unsupported_media_type"),
        (request(method="POST", headers={"content-length": str(512 * MIB)}), 413, "request_too_large"),
        (request(method="GET", path="/livez", headers={"x-long": "h" * MIB}), 431, "headers_too_large"),
        (request(method="GET", path="/" + "u" * 65_536), 414, "uri_too_long"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else str(value),
)
def test_what_is_wrong_with_a_request_has_its_status(stack: Stack, raw: bytes, status: int, code: str) -> None:
    reply = send_raw(stack.url, raw)
    assert_row(reply, status, REJECTED, code)
    assert ("allow" in reply.headers) == (status == 405)


async def test_keys_no_key_bad_key_and_a_model_that_is_not_the_keys(tmp_path: Path) -> None:
    key = f'{{id: k, sha256: "{sha256(KEY.encode()).hexdigest()}"}}'
    policy = policy_text(tmp_path) + f"tenants: [{{id: shop, models: [auto], keys: [{key}]}}]\n"
    async with running(tmp_path, policy=policy) as stack:
        for sent in ({}, {"authorization": "Bearer wrong"}):
            assert_row(await stack.call(chat(), headers=sent), 401, REJECTED, "invalid_api_key")
        good = {"authorization": f"Bearer {KEY}"}
        assert_row(await stack.call(chat(model="tiny"), headers=good), 403, REJECTED, "model_not_allowed")
        assert (await stack.call(chat(), headers=good)).status == 200


async def test_a_full_queue_is_503_and_worth_a_retry(tmp_path: Path) -> None:
    async with running(tmp_path, permits=1, max_queue=0) as stack:
        gate = asyncio.Event()

        async def wait(wire: Wire) -> None:
            await gate.wait()
            await wire.answer(COMPLETION)

        stack.small.scripts = [wait]
        under_way = asyncio.create_task(stack.call(chat(model="solo")))
        await asyncio.wait_for(stack.small.got_request.wait(), 10)
        assert_shed(await stack.call(chat(model="solo")), "queue_full", should_retry=True)
        gate.set()
        assert (await under_way).status == 200


async def test_no_deployment_ready_is_503_and_worth_a_retry(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.is_ready = stack.large.is_ready = False
        await stack.gateway._prober.probe_all()
        assert_shed(await stack.call(chat()), "overload", should_retry=True)


def test_a_deadline_that_cannot_be_met_is_503_and_no_retry_helps(stack: Stack) -> None:
    for name in ("x-stainless-timeout", "x-stainless-read-timeout"):
        assert_shed(send_raw(stack.url, request(chat(), headers={name: "0.000001"})), "deadline", should_retry=False)


async def test_an_upstream_that_fails_is_502(tmp_path: Path) -> None:
    async def fail(wire: Wire) -> None:
        await wire.answer(b'{"error": {"message": "secret detail"}}', 500, {"x-penstock-error-code": "forged"})

    async def reset(wire: Wire) -> None:
        wire.abort()

    async with running(tmp_path) as stack:
        for script in (fail, reset):
            stack.small.scripts = [script, script]  # a connection stored from before is replaced once
            reply = await stack.call(chat(model="solo"))
            assert_row(reply, 502, "api_error", "upstream_error")
            assert b"secret detail" not in reply.body
            stack.small.scripts = []


async def test_an_upstream_that_is_late_is_504(tmp_path: Path) -> None:
    async with running(tmp_path, first_token_ms=600) as stack:
        stack.small.scripts = [hang]
        assert_row(await stack.call(chat(model="solo", stream=True)), 504, "api_error", "upstream_timeout")


async def test_an_upstreams_own_refusal_passes_without_the_header_that_is_ours(tmp_path: Path) -> None:
    refusal = (
        b'{"error": {"message": "no", "type": "invalid_request_error", "param": "tools", "code": "invalid_value"}}'
    )

    async def refuse(wire: Wire) -> None:
        await wire.answer(refusal, 400, {"x-penstock-error-code": "forged", "x-request-id": "theirs"})

    async with running(tmp_path) as stack:
        stack.small.scripts = [refuse]
        reply = await stack.call(chat(model="solo"))
        assert_row(reply, 400, REJECTED, "invalid_value", by_gateway=False)
        assert reply.body == refusal


async def test_a_failure_after_the_first_byte_is_an_event_and_the_end_of_the_connection(tmp_path: Path) -> None:
    async def break_off(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(b'{"choices": [{"index": 0, "delta": {"content": "hel"}, "finish_reason": null}]}')
        wire.abort()

    async with running(tmp_path) as stack:
        stack.small.scripts = [break_off]
        reply = await stack.call(chat(model="solo", stream=True), headers={"connection": "keep-alive"})
        assert reply.status == 200
        *_, last = reply.body.strip().split(b"\n\n")
        assert last.startswith(b'data: {"error":{')
        assert b"[DONE]" not in reply.body


async def test_a_client_that_leaves_is_logged_as_499(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [hang]
        reader, writer = await stack.connect()
        writer.write(request(chat(model="solo"), headers={"connection": "keep-alive"}))
        await asyncio.wait_for(stack.small.got_request.wait(), 10)
        writer.close()
        await asyncio.wait_for(stack.small.gone.wait(), 10)
        await stack.until_idle()
        line = stack.lines()[0]
        assert (line["status"], line["code"], line["outcome"]) == (499, "client_closed_request", "cancelled")
        assert await reader.read() == b""

"""A stream is measured by its first event that means something: what the client gets, and what is known afterwards."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.deployments.health.ejection import EjectionRules
from gateway.forwarding.stream_head import MAX_HEAD_BYTES, Beginning, StreamHead
from tests.gateway.scripted import COMPLETION, Script, Wire, chunk
from tests.gateway.stack import NO_EJECTION, chat, encode, running

ROLE = json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}).encode()
ERROR = b'{"error":{"message":"engine died","type":"server_error","param":null,"code":null}}'


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def delta(**fields: Any) -> bytes:
    return event(json.dumps({"choices": [{"index": 0, "delta": fields}]}).encode())


HEADS: list[tuple[str, bytes, Beginning]] = [
    ("no JSON", event(b'{"choices":[{"delta":{"role":"assis'), "nothing"),
    ("no UTF-8", event(chunk("X").replace(b"X", b"\xff")).replace(b'"content"', b'"other"'), "nothing"),
    ("a ping before text", event(b"ping") + event(chunk("a")), "answer"),
    ("text", event(chunk("a")), "answer"),
    ("text about an error", event(chunk("error")), "answer"),
    ("reasoning", delta(reasoning_content="hm"), "answer"),
    ("reasoning details", delta(reasoning_details=[{"text": "hm"}]), "answer"),
    ("refusal", delta(refusal="no"), "answer"),
    ("tool call", delta(tool_calls=[{"index": 0, "id": "c"}]), "answer"),
    ("image", delta(images=[{"type": "image_url"}]), "answer"),
    ("audio", delta(audio={"data": "AAAA"}), "answer"),
    ("finish", event(chunk(finish="stop")), "answer"),
    ("content filter", event(chunk(finish="content_filter")), "answer"),
    ("usage", event(chunk(usage=(1, 0))), "answer"),
    ("text, then an error", event(chunk("a")) + event(ERROR), "answer"),
    ("error", event(ERROR), "error"),
    ("error, then text", event(ERROR) + event(chunk("a")), "error"),
    ("error after a comment", b": hi\n\n" + event(ERROR), "error"),
    ("error after the role", event(ROLE) + event(ERROR), "error"),
    ("named", b"event: error\ndata: overloaded\n\n", "error"),
    ("named, after the role", event(ROLE) + b"event: error\r\ndata: {}\r\n\r\n", "error"),
    ("finish reason", event(chunk(finish="error")), "error"),
    ("without a blank line at the end", b'data: {"error":"boom"}', "error"),
    ("with a mark", b"\xef\xbb\xbf" + event(ERROR), "error"),
    ("in several lines", b'data: {"error":\ndata: "boom"}\n\n', "error"),
    ("a field of its own", b'error: {"code":500,"message":"engine died"}\n\n', "error"),
    ("bare JSON error", b'{"error":"engine died"}\n', "error"),
    ("in a list", event(b"[" + ERROR + b"]"), "error"),
    ("another status", event(b'{"base_resp":{"status_code":1008,"status_msg":"engine died"}}'), "error"),
    ("status code", event(b'{"statusCode":500,"message":"engine died"}'), "error"),
    ("bare JSON", COMPLETION, "nothing"),
    ("bare JSON after the role", event(ROLE) + COMPLETION + b"\n", "nothing"),
    ("HTML", b"<html>\n<body>Bad Gateway</body>\n</html>\n", "nothing"),
    ("done with a space", b"data: [DONE] \n\n", "nothing"),
    ("done, then text", b"data: [DONE] \n\n" + event(chunk("a")), "nothing"),
    ("a mark in the middle", event(ROLE) + b"\xef\xbb\xbf" + event(chunk("a")), "nothing"),
    ("empty", b"", "nothing"),
    ("done", b"data: [DONE]\n\n", "nothing"),
    ("role and done", event(ROLE) + b"data: [DONE]\n\n", "nothing"),
    ("comments", b": hi\n\n" * 9, "nothing"),
    ("role", event(ROLE), "nothing"),
    ("no JSON", event(b"Internal Server Error"), "nothing"),
    ("empty choices", event(b'{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}'), "nothing"),
    ("usage beside the role", event(ROLE[:-1] + b',"usage":{"prompt_tokens":1}}'), "nothing"),
]


@pytest.mark.parametrize(("name", "stream", "expected"), HEADS)
def test_a_beginning_is_what_its_first_event_means_wherever_it_is_cut(
    name: str, stream: bytes, expected: Beginning
) -> None:
    for size in {1, 2, 7, len(stream) or 1}:
        head = StreamHead()
        for at in range(0, len(stream), size):
            if head.beginning == "unknown":
                head.feed(stream[at : at + size])
        head.close()
        assert head.beginning == expected, (name, size)
        assert (head.error is not None) is (expected == "error")


def test_a_beginning_without_an_end_is_passed_on() -> None:
    head = StreamHead()
    head.feed(b"data: " + b"x" * (MAX_HEAD_BYTES + 10))
    assert head.beginning == "answer"


def stream(*events: bytes) -> Script:
    async def script(wire: Wire) -> None:
        await wire.start_stream()
        for data in events:
            await wire.send(b"%x\r\n%b\r\n" % (len(data), data))
            await asyncio.sleep(0)
        await wire.end()

    return script


BAD_HEADS = {name: found for name, found, expected in HEADS if expected != "answer"}


@pytest.mark.parametrize("name", BAD_HEADS)
async def test_another_deployment_answers_for_a_stream_that_begins_badly(tmp_path: Path, name: str) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [stream(*filter(None, [BAD_HEADS[name]]))]
        reply = await stack.call(chat(stream=True))

        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "large")
        assert b"error" not in reply.body
        assert reply.body.count(b"[DONE]") == 1
        (line,) = stack.lines()
        assert (line["outcome"], line["attempts"]) == ("completed", 2)


@pytest.mark.parametrize("name", BAD_HEADS)
async def test_without_another_deployment_a_bad_beginning_has_a_status(tmp_path: Path, name: str) -> None:
    async with running(tmp_path) as stack:
        found = BAD_HEADS[name]
        stack.small.scripts = [stream(*(found[at : at + 9] for at in range(0, len(found), 9)))]
        reply = await stack.call(chat("solo", stream=True))

        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert b"engine died" not in reply.body
        assert stack.lines()[0]["outcome"] == "upstream_failed"


async def test_bad_beginnings_eject_a_deployment(tmp_path: Path) -> None:
    async with running(tmp_path, ejection=EjectionRules(consecutive_failures=3, min_exchanges=100)) as stack:
        stack.small.otherwise = stream(event(ROLE), event(ERROR))
        for _ in range(6):
            assert (await stack.call(chat(stream=True))).status == 200
        assert len(stack.small.received) == 3


async def test_bad_beginnings_stay_within_the_retry_budget(tmp_path: Path) -> None:
    async with running(tmp_path, ejection=NO_EJECTION) as stack:
        stack.small.otherwise = stream(event(ERROR))
        for _ in range(30):
            await stack.call(chat(stream=True))
        assert 10 <= len(stack.large.received) <= 14


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ({"message": "too long", "type": "invalid_request_error", "param": "messages", "code": None}, 400, None),
        ({"message": "too long", "type": "BadRequestError", "code": 400}, 400, 400),
        ({"message": "slower", "code": 429}, 429, 429),
        ({"message": "slower", "type": "RateLimitError"}, 429, None),
        ({"message": "slower", "__type": "com.amazon.coral#ThrottlingException"}, 429, None),
        ({"message": "too large", "type": "request_too_large"}, 413, None),
        ({"message": "not valid", "error_type": "validation"}, 422, None),
        ({"message": "odd", "type": "invalid_request_error", "raw_status_code": 422}, 422, None),
        ({"message": "too long", "type": "exceed_context_size_error", "n_ctx": 512}, 400, None),
    ],
)
@pytest.mark.parametrize("is_stream", [True, False])
async def test_an_error_that_blames_the_request_reaches_the_client_with_its_status(
    tmp_path: Path, error: dict[str, Any], status: int, code: object, is_stream: bool
) -> None:
    body = json.dumps({"error": error}).encode()

    async def plain(wire: Wire) -> None:
        await wire.answer(body)

    async with running(tmp_path, ejection=EjectionRules(consecutive_failures=1)) as stack:
        stack.small.otherwise = stream(event(ROLE), event(body)) if is_stream else plain
        for _ in range(2):  # nobody is ejected for it
            reply = await stack.call(chat("solo", stream=is_stream))
            assert (reply.status, reply.headers["content-type"]) == (status, "application/json")
            assert (reply.error["message"], reply.error["code"]) == (error["message"], code)
            assert set(reply.error) == {"message", "type", "param", "code"}
        assert {line["outcome"] for line in stack.lines()} == {"rejected"}


async def test_a_wrong_model_name_in_the_beginning_moves_the_request(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [stream(event(b'{"error":{"message":"none such","code":"model_not_found"}}'))]
        reply = await stack.call(chat(stream=True))
        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "large")


async def test_a_rate_limit_in_the_beginning_moves_the_request(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [stream(event(b'{"error":{"message":"slower","code":429}}'))]
        reply = await stack.call(chat(stream=True))
        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "large")


async def test_a_beginning_that_breaks_off_after_the_role_is_replaced(tmp_path: Path) -> None:
    async def breaks(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(ROLE)
        await asyncio.sleep(0.01)
        wire.abort()

    async with running(tmp_path) as stack:
        stack.small.scripts = [breaks]
        reply = await stack.call(chat(stream=True))
        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "large")


async def test_the_first_text_leaves_at_once_with_all_that_was_held(tmp_path: Path) -> None:
    is_read = asyncio.Event()

    async def waits(wire: Wire) -> None:
        await wire.start_stream()
        await wire.send(b"6\r\n: hb\n\n\r\n")
        await wire.event(ROLE)
        await wire.event(chunk("hel"))
        await is_read.wait()
        await wire.event(chunk(finish="stop"))
        await wire.end()

    async with running(tmp_path) as stack:
        stack.small.scripts = [waits]
        reader, writer = await stack.connect()
        writer.write(encode(chat(stream=True)))
        raw = await asyncio.wait_for(reader.readuntil(b'"hel"'), 5)
        is_read.set()
        raw += await asyncio.wait_for(reader.read(), 5)
        writer.close()
        assert raw.index(b": hb") < raw.index(ROLE) < raw.index(b'"hel"') < raw.index(b"[DONE]")


async def test_a_plain_answer_that_is_an_error_is_replaced(tmp_path: Path) -> None:
    bodies = (
        b'{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"error"}]}',
        b'{"choices":[],"error":{"message":"x"}}',
        b'{"choices":[{"index":0,"message":{"role":"assistant","content":"a"}',
        b'{"detail":"Internal Server Error"}',
    )
    for number, body in enumerate(bodies):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with running(folder) as stack:
            stack.small.scripts = [plain(body)]
            reply = await stack.call(chat())
            assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "large"), body


def plain(body: bytes) -> Script:
    async def script(wire: Wire) -> None:
        await wire.answer(body)

    return script


FAILED = {
    "spaces": [event(b'{ "error" : {"message": "x"}}')],
    "key not first": [event(b'{"id": "c", "error": {"message": "x"}}')],
    "several lines": [b'data: {"error":\ndata: {"message": "x"}}\n\n'],
    "finish reason": [event(chunk(finish="error"))],
    "an error object": [event(b'{"object": "error", "message": "x", "code": 500}')],
    "detail": [event(b'{"detail": "Internal Server Error"}')],
    "named": [b"event: error\ndata: boom\n\n"],
    "one of two choices": [
        event(b'{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":null}]}'),
        event(chunk(finish="stop")),
    ],
}


@pytest.mark.parametrize("name", FAILED)
@pytest.mark.parametrize("has_done", [False, True])
async def test_a_stream_that_fails_later_ends_with_an_error_and_counts_as_failed(
    tmp_path: Path, name: str, has_done: bool
) -> None:
    async with running(tmp_path, ejection=EjectionRules(consecutive_failures=2, min_exchanges=100)) as stack:
        usage = event(chunk(usage=(7, 3)))
        ending = [event(b"[DONE]")] if has_done else []
        stack.small.otherwise = stream(event(chunk("hel")), usage, *FAILED[name], *ending)
        for _ in range(2):
            reply = await stack.call(chat(stream=True))
            assert reply.status == 200
            assert b"[DONE]" not in reply.body
            assert b'"hel"' in reply.body
            assert b'"error"' in reply.body
        for line in stack.lines():
            assert (line["outcome"], line["is_incomplete"]) == ("upstream_failed", True)
            assert (line["prompt_tokens"], line["completion_tokens"]) == (7, 3)
        assert (await stack.call(chat(stream=True))).headers["x-penstock-deployment"] == "large", "it is ejected"


async def test_line_ends_of_any_kind_are_a_whole_answer(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        for end in (b"\r\n", b"\r"):
            parts = [chunk("hel"), chunk(finish="stop"), chunk(usage=(7, 3))]
            stack.small.scripts = [stream(*(b"data:" + part + end + end for part in parts))]
            reply = await stack.call(chat("solo", stream=True))
            assert reply.body.endswith(b"data: [DONE]\n\n")
        assert {(line["outcome"], line["completion_tokens"]) for line in stack.lines()} == {("completed", 3)}

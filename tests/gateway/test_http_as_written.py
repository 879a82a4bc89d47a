"""HTTP of upstreams and clients as it is written: cases, parameters, codings and wishes to be left alone."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.chat.headers import ChatHead
from gateway.chat.request import require_json
from gateway.errors import InvalidRequest, UnsupportedMediaType
from tests.gateway.scripted import COMPLETION, Script, Wire, chunk
from tests.gateway.stack import Stack, chat, encode, running

STREAM = b"".join(b"data: " + data + b"\n\n" for data in (chunk("hel"), chunk("lo"), chunk(finish="stop"), b"[DONE]"))


def raw(*head: str, body: bytes, framing: str | None = None) -> Callable[[Wire], Any]:
    """A script that sends this head and body as they are."""

    async def script(wire: Wire) -> None:
        lines = ["HTTP/1.1 200 OK", framing or f"Content-Length: {len(body)}", *head]
        await wire.send("\r\n".join([*lines, "", ""]).encode() + body)
        if framing is not None and "close" in framing.lower():
            wire.writer.close()

    return script


@pytest.mark.parametrize(
    "kind", ["Text/Event-Stream; Charset=UTF-8", "TEXT/EVENT-STREAM", "text/event-stream ;charset=utf-8"]
)
async def test_a_stream_is_a_stream_however_its_type_is_written(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [raw(f"Content-Type: {kind}", body=STREAM)]
        reply = await stack.call(chat("solo", stream=True))

        assert (reply.status, reply.body) == (200, STREAM)


@pytest.mark.parametrize(
    ("framing", "body"),
    [
        ("Transfer-Encoding: Chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(COMPLETION), COMPLETION)),
        ("TRANSFER-ENCODING: CHUNKED", b"%x;a=b\r\n%b\r\n0\r\nx-trailer: 1\r\n\r\n" % (len(COMPLETION), COMPLETION)),
        ("Connection: Close", COMPLETION),
        ("Connection: Keep-Alive, CLOSE", COMPLETION),
    ],
)
async def test_framing_is_read_whatever_its_case(tmp_path: Path, framing: str, body: bytes) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [raw("Content-Type: Application/JSON", body=body, framing=framing)]
        reply = await stack.call(chat("solo"))

        assert (reply.status, reply.body) == (200, COMPLETION)
        assert (await stack.call(chat("solo"))).status == 200


@pytest.mark.parametrize("status", [b"100 Continue", b"102 Processing", b"103 Early Hints"])
async def test_interim_responses_are_skipped_with_their_headers(tmp_path: Path, status: bytes) -> None:
    async def script(wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 " + status + b"\r\ncontent-encoding: br\r\nlink: </x>\r\n\r\n")
        await wire.answer(COMPLETION)

    async with running(tmp_path) as stack:
        stack.small.scripts = [script]
        assert (await stack.call(chat("solo"))).body == COMPLETION


async def test_upstreams_are_called_not_to_compress(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.call(chat("solo"), headers={"accept-encoding": "gzip, br"})
        await stack.call(chat("solo", stream=True))
        await stack.gateway._prober.probe_all()

        requested = [*stack.small.received, *stack.small.probes]
        assert {received.headers["accept-encoding"] for received in requested} == {"identity"}


CODINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("X-GZIP", gzip.compress),
    ("deflate", zlib.compress),
    ("identity", bytes),
]


@pytest.mark.parametrize(("coding", "pack"), CODINGS)
async def test_a_compressed_answer_reaches_the_client_as_it_was(
    tmp_path: Path, coding: str, pack: Callable[[bytes], bytes]
) -> None:
    async with running(tmp_path) as stack:
        coded = f"Content-Encoding: {coding}"
        stack.small.scripts = [
            raw("content-type: application/json", coded, body=pack(COMPLETION)),
            raw("content-type: text/event-stream", coded, body=pack(STREAM)),
        ]
        plain = await stack.call(chat("solo"))
        stream = await stack.call(chat("solo", stream=True))

        assert (plain.status, plain.body) == (200, COMPLETION)
        assert (stream.status, stream.body) == (200, STREAM)
        assert "content-encoding" not in plain.headers.keys() | stream.headers.keys()


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("coding", "body"),
    [("br", b"\x8b\x02\x80x"), ("zstd", b"(\xb5/\xfd"), ("gzip", b"no gzip"), ("deflate", b"\xff\xff\xff")],
)
async def test_an_answer_that_cannot_be_inflated_comes_from_elsewhere_or_gives_the_reason(
    tmp_path: Path, coding: str, body: bytes, is_stream: bool
) -> None:
    kind = "text/event-stream" if is_stream else "application/json"
    script = raw(f"content-type: {kind}", f"content-encoding: {coding}", body=body)
    async with running(tmp_path) as stack:
        stack.small.scripts = [script, script]
        moved = await stack.call(chat(stream=is_stream))
        assert (moved.status, moved.headers["x-penstock-deployment"]) == (200, "large")
        notified = await stack.call(chat("solo", stream=is_stream))
        assert (notified.status, notified.error["code"]) == (502, "upstream_error")
        assert "compressed" in notified.error["message"]


async def test_a_compressed_refusal_is_passed_on(tmp_path: Path) -> None:
    error = {"message": "too long", "type": "invalid_request_error", "param": "messages", "code": "x"}
    body = gzip.compress(json.dumps({"error": error}).encode())

    async def refuse(wire: Wire) -> None:
        await wire.answer(body, 400, {"content-encoding": "gzip"})

    async def refuse_in_riddles(wire: Wire) -> None:
        await wire.answer(b"\x8b\x02\x80", 422, {"content-encoding": "br"})

    async with running(tmp_path) as stack:
        stack.small.scripts = [refuse, refuse_in_riddles]
        reply = await stack.call(chat("solo"))
        assert (reply.status, reply.error) == (400, error)
        reply = await stack.call(chat("solo"))
        assert reply.status == 422
        assert reply.error["message"] == "Deployment 'small' refused the request with status 422."


async def resting(stack: Stack, **headers: str) -> None:
    async def refuse(wire: Wire) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await wire.answer(b'{"error":{"message":"slow down","type":"x","param":null,"code":"y"}}', 429, named)

    stack.small.scripts = [refuse]
    assert (await stack.call(chat("solo"))).status == 429


@pytest.mark.parametrize(
    ("headers", "least_s", "most_s"),
    [
        ({"retry_after": "7"}, 6, 7),
        ({"retry_after": "86400"}, 59, 60),
        ({"retry_after": "99999999999999999999"}, 59, 60),
        ({"retry_after_ms": "20000", "retry_after": "1"}, 19, 20),
        ({"retry_after": "Fri, 31 Dec 2083 23:59:59 GMT"}, 59, 60),
        ({"retry_after": "Fri Dec 31 23:59:59 2083"}, 59, 60),
        ({"date": "Sun, 22 Nov 2026 16:00:00 GMT", "retry_after": "Sunday, 22-Nov-26 16:00:30 GMT"}, 29, 30),
    ],
)
async def test_callers_of_a_resting_deployment_get_its_429(
    tmp_path: Path, headers: dict[str, str], least_s: int, most_s: int
) -> None:
    async with running(tmp_path) as stack:
        await resting(stack, **headers)
        reply = await stack.call(chat("solo"))

        assert (reply.status, reply.error["type"], reply.error["code"]) == (
            429,
            "rate_limit_error",
            "rate_limit_exceeded",
        )
        assert least_s <= int(reply.headers["retry-after"]) <= most_s
        assert len(stack.small.received) == 1, "nothing is sent there meanwhile"
        assert (await stack.call(chat())).headers["x-penstock-deployment"] == "large"


async def test_callers_of_a_deployment_that_is_down_still_get_a_503(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.gateway._current().deployments["small"].is_ready = False
        reply = await stack.call(chat("solo"))

        assert (reply.status, reply.error["code"]) == (503, "server_is_overloaded")


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "Application/JSON",
        "application/json;Charset=UTF-8",
        'application/json ; charset="utf-8" ; v=1',
    ],
)
async def test_a_request_is_json_however_its_type_is_written(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path) as stack:
        assert (await stack.call(chat("solo"), headers={"content-type": kind})).status == 200


@pytest.mark.parametrize("coding", [None, b"", b"identity", b"Identity", b"identity, IDENTITY", b" , "])
def test_a_body_that_is_not_coded_is_taken(coding: bytes | None) -> None:
    require_json(b"application/json", coding)


@pytest.mark.parametrize(
    ("kind", "coding"),
    [
        (b"application/json", b"gzip"),
        (b"application/json", b"identity, gzip"),
        (b"application/json; charset=latin-1", None),
        (b"application/jsonl", None),
        (None, None),
    ],
)
def test_other_bodies_are_refused(kind: bytes | None, coding: bytes | None) -> None:
    with pytest.raises((UnsupportedMediaType, InvalidRequest)):
        require_json(kind, coding)


def test_directives_spread_over_headers_count_together() -> None:
    head = ChatHead([(b"cache-control", b"no-store"), (b"cache-control", b"max-age=5"), (b"tracestate", b"a=1")])
    assert head.cache_control == b"no-store,max-age=5"


async def test_a_closing_client_is_answered_whatever_the_case_of_its_wish(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        for wish in ("Close", "CLOSE", "keep-alive, Close"):
            reader, writer = await stack.connect()
            writer.write(encode(chat("solo"), headers={"connection": wish}))
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()


def raw_answer(head: bytes, body: bytes) -> Script:
    async def script(wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))

    return script


@pytest.mark.parametrize("kind", [b"", b"content-type: text/plain\r\n", b"content-type: application/octet-stream\r\n"])
async def test_a_stream_is_known_by_its_events_where_its_type_states_something_else(
    tmp_path: Path, kind: bytes
) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [raw_answer(kind, STREAM)]
        reply = await stack.call(chat(stream=True))

        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "small")
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.body == STREAM


@pytest.mark.parametrize("kind", [b"", b"content-type: text/plain\r\n", b"content-type: text/html\r\n"])
@pytest.mark.parametrize("body", [COMPLETION, b"<html>busy</html>", b"", b'data: {"error":{"message":"x"}}\n\n'])
async def test_what_has_no_events_is_no_stream_whatever_its_type(tmp_path: Path, kind: bytes, body: bytes) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [raw_answer(kind, body)]
        reply = await stack.call(chat(stream=True))

        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "large")
        assert reply.body.endswith(b"[DONE]\n\n")


@pytest.mark.parametrize("kind", ["APPLICATION/JSON; charset=utf-8", "text/plain", "application/vnd.api+json"])
async def test_a_whole_answer_is_json_for_the_client_however_its_type_is_written(tmp_path: Path, kind: str) -> None:
    async def plain(wire: Wire) -> None:
        await wire.answer(COMPLETION, headers={"content-type": kind})

    async with running(tmp_path) as stack:
        stack.small.scripts = [plain]
        reply = await stack.call(chat())

        assert (reply.status, reply.headers["content-type"], reply.body) == (200, "application/json", COMPLETION)


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-be", "utf-32"])
async def test_json_that_is_no_utf_8_is_no_completion(tmp_path: Path, coding: str) -> None:
    async def plain(wire: Wire) -> None:
        await wire.answer(COMPLETION.decode().encode(coding))

    async with running(tmp_path) as stack:
        stack.small.scripts = [plain]
        assert (await stack.call(chat())).headers["x-penstock-deployment"] == "large"

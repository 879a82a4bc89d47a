"""Bodies, plain answers and clients that disconnect, in ASGI's messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.frontend.request.asgi import (
    Client,
    Disconnected,
    Headers,
    Message,
    Receive,
    read_json_body,
    send_error,
    watched_client,
)
from engine.frontend.request.errors import ApiError

JSON = {"content-type": "application/json"}


def headers(values: dict[str, str]) -> Headers:
    return Headers({"headers": [(name.encode(), value.encode("latin-1")) for name, value in values.items()]})


def receiving(*messages: Message) -> Receive:
    left = list(messages)

    async def receive() -> Message:
        return left.pop(0)

    return receive


def chunk(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_in_pieces_is_read_whole() -> None:
    receive = receiving(chunk(b"{"), chunk(b""), chunk(b"}", more=False))
    assert await read_json_body(headers({"content-type": "Application/JSON; charset=utf-8"}), receive, 2) == b"{}"


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({}, 415),
        ({"content-type": "text/plain"}, 415),
        ({**JSON, "content-encoding": "gzip"}, 415),
        ({**JSON, "content-length": "11"}, 413),
    ],
)
async def test_a_body_is_refused_by_its_headers_before_it_is_read(values: dict[str, str], status: int) -> None:
    with pytest.raises(ApiError) as caught:
        await read_json_body(headers(values), receiving(), 10)
    assert (caught.value.status, caught.value.headers) == (status, {"connection": "close"})


async def test_a_body_that_lies_about_its_length_is_cut_at_the_limit() -> None:
    with pytest.raises(ApiError, match="limit of 10 bytes"):
        await read_json_body(headers(JSON), receiving(chunk(b"x" * 6), chunk(b"x" * 6)), 10)


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error_of_it() -> None:
    with pytest.raises(Disconnected):
        await read_json_body(headers(JSON), receiving(chunk(b"{"), {"type": "http.disconnect"}), 10)


def test_of_a_header_that_appears_twice_the_first_counts() -> None:
    found = Headers({"headers": [(b"x", b"1"), (b"x", b"2"), (b"y", "é".encode("latin-1"))]})
    assert (found.get("x"), found.get("y"), found.get("z")) == ("1", "é", None)


async def test_an_error_is_sent_with_its_headers_and_the_length_of_its_envelope() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await send_error(send, ApiError(405, "no", code="method_not_allowed", headers={"allow": "GET"}))
    start, body = sent
    assert start["status"] == 405
    assert dict(start["headers"]) == {
        b"content-type": b"application/json",
        b"allow": b"GET",
        b"content-length": str(len(body["body"])).encode(),
    }


async def test_a_watched_client_that_leaves_is_reported_at_once() -> None:
    left, notified = asyncio.Event(), asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async with watched_client(receive) as client:
        client.when_gone(notified.set)
        assert not client.is_gone
        left.set()
        await asyncio.wait_for(notified.wait(), 5)
        assert client.is_gone


def test_who_calls_after_the_client_left_is_reported_too() -> None:
    client, calls = Client(), list[str]()
    client.leave()
    client.when_gone(lambda: calls.append("gone"))
    assert calls == ["gone"]

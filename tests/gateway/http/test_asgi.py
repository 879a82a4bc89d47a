"""Verbs over plain ASGI."""

from __future__ import annotations

import pytest

from gateway.http.asgi import (
    BodyTooLarge,
    ClientGone,
    Message,
    Receive,
    edge_channel,
    find_header,
    find_headers,
    read_body,
    respond,
)


def _messages(*messages: Message) -> Receive:
    left = list(messages)

    async def receive() -> Message:
        return left.pop(0)

    return receive


def _parts(*parts: bytes) -> Receive:
    return _messages(
        *(
            {"type": "http.request", "body": part, "more_body": number + 1 < len(parts)}
            for number, part in enumerate(parts)
        )
    )


async def test_a_body_in_one_piece_is_not_copied() -> None:
    body = b"x" * 1000
    assert await read_body(_parts(body), 1000) is body


async def test_a_body_in_pieces_is_joined() -> None:
    assert await read_body(_parts(b"a", b"", b"bc"), 3) == b"abc"


@pytest.mark.parametrize("parts", [(b"abcd",), (b"ab", b"cd"), (b"a", b"b", b"c", b"d")])
async def test_a_body_over_the_limit_is_refused(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(BodyTooLarge):
        await read_body(_parts(*parts), 3)


@pytest.mark.parametrize("first", [(), ({"type": "http.request", "body": b"a", "more_body": True},)])
async def test_a_body_that_ends_early_is_a_client_gone(first: tuple[Message, ...]) -> None:
    with pytest.raises(ClientGone):
        await read_body(_messages(*first, {"type": "http.disconnect"}), 10)


async def test_a_message_without_body_is_an_empty_body() -> None:
    assert await read_body(_messages({"type": "http.request"}), 0) == b""


def test_headers_are_found_by_name() -> None:
    scope = {"headers": [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]}
    assert find_header(scope, b"a") == b"1"
    assert find_header(scope, b"c") is None
    assert find_headers(scope, b"a") == [b"1", b"3"]


async def test_a_response_is_two_messages_with_a_length() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await respond(send, 201, [(b"x-a", b"b")], b"hello")
    assert sent == [
        {"type": "http.response.start", "status": 201, "headers": [(b"x-a", b"b"), (b"content-length", b"5")]},
        {"type": "http.response.body", "body": b"hello", "more_body": False},
    ]


@pytest.mark.parametrize("scope", [{}, {"extensions": None}, {"extensions": {}}])
def test_another_server_offers_no_channel(scope: dict[str, object]) -> None:
    assert edge_channel(scope) is None

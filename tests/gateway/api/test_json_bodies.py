"""Small JSON bodies: decoded within the memory that bodies may take, which is given back on every path."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from gateway.api.json_bodies import JsonBodies
from gateway.errors import InvalidRequest, RequestTooLarge, UnsupportedMediaType
from gateway.http.asgi import ClientGone
from gateway.limits.body_budget import BodyBudget
from gateway.util.workers import Workers


@pytest.fixture
def budget() -> BodyBudget:
    return BodyBudget(10_000_000)


@pytest.fixture
def bodies(budget: BodyBudget) -> JsonBodies:
    return JsonBodies(budget, Workers(1, name="test"))


def request(*pieces: bytes, method: str = "POST", kind: str = "application/json", is_whole: bool = True) -> Request:
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    if is_whole:
        messages.append({"type": "http.request", "body": b"", "more_body": False})
    else:
        messages.append({"type": "http.disconnect"})

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    headers = [(b"content-type", kind.encode())]
    return Request({"type": "http", "method": method, "path": "/", "headers": headers}, receive)


async def test_a_document_is_held_while_it_is_used_and_then_no_more(bodies: JsonBodies, budget: BodyBudget) -> None:
    async with bodies.read(request(b'{"a":', b" 1}"), "shop") as document:
        assert document == {"a": 1}
        assert budget.used_bytes > 0
    assert budget.used_bytes == 0


async def test_no_body_is_an_empty_document_for_delete_only(bodies: JsonBodies) -> None:
    async with bodies.read(request(method="DELETE"), "shop") as document:
        assert document == {}
    with pytest.raises(InvalidRequest):
        async with bodies.read(request(), "shop"):
            raise AssertionError("there is no document")


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (lambda: request(b"x" * 101), RequestTooLarge),
        (lambda: request(b"{}", kind="text/plain"), UnsupportedMediaType),
        (lambda: request(b"[1]"), InvalidRequest),
        (lambda: request(b'{"a": '), InvalidRequest),
        (lambda: request(b'{"a"', is_whole=False), ClientGone),
    ],
)
async def test_whatever_is_wrong_nothing_stays_counted(
    bodies: JsonBodies, budget: BodyBudget, made: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        async with bodies.read(made(), "shop", max_bytes=100):
            raise AssertionError("there is no document")
    assert budget.used_bytes == 0


async def test_a_long_document_is_decoded_all_the_same(bodies: JsonBodies, budget: BodyBudget) -> None:
    text = b'{"text": "' + b"x" * 60_000 + b'"}'
    async with bodies.read(request(text), "shop") as document:
        assert len(document["text"]) == 60_000
    assert budget.used_bytes == 0

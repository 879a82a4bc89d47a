"""A Starlette application as the listeners have it: ids, envelopes, and faults that state nothing."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.application import ApiResponse, encode_json, starlette_application
from gateway.errors import InvalidRequest
from gateway.http.asgi import ClientGone, Message, Receive, Scope, Send
from gateway.telemetry.logs.log import LogWriter
from gateway.timeline import RequestIds


async def good(request: Request) -> Response:
    return ApiResponse({"path": request.url.path})


async def bad(request: Request) -> Response:
    raise InvalidRequest("It is wrong.", param="it")


async def broken(request: Request) -> Response:
    raise RuntimeError("secret")


async def left(request: Request) -> Response:
    raise ClientGone("The client left.")


class Cut:
    """Fails behind its first bytes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("cut")


ROUTES = [
    *(Route("/good", good), Route("/bad", bad), Route("/broken", broken), Route("/left", left)),
    *(Route("/sent", good, methods=["POST"]), Route("/cut", Cut())),
]


async def call(path: str, method: str = "GET", log: io.BytesIO | None = None) -> list[Message]:
    """What a request is sent."""
    writer = LogWriter(log or io.BytesIO(), level="info")
    application = starlette_application(ROUTES, ids=RequestIds(random.Random(7)), log=writer)
    sent: list[Message] = []
    scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": []}

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    try:
        await application(scope, receive, send)
    finally:
        writer.flush()
    return sent


@pytest.mark.parametrize(
    ("path", "method", "status", "code"),
    [
        ("/bad", "GET", 400, "invalid_value"),
        ("/nowhere", "GET", 404, "not_found"),
        ("/good/", "GET", 404, "not_found"),
        ("/sent", "GET", 405, "method_not_allowed"),
        ("/broken", "GET", 500, "internal_error"),
    ],
)
async def test_every_error_has_the_envelope_and_an_id(path: str, method: str, status: int, code: str) -> None:
    start, body = await call(path, method)
    headers = dict(start["headers"])
    error = json.loads(body["body"])["error"]
    assert (start["status"], error["code"]) == (status, code)
    assert error.keys() == {"message", "type", "param", "code"}
    assert headers[b"x-request-id"].startswith(b"req_")
    assert headers[b"x-penstock-error-code"] == code.encode()
    assert headers.get(b"allow") == (b"POST" if status == 405 else None)
    assert b"secret" not in body["body"]


async def test_a_fault_is_in_the_log_with_the_id_that_the_client_got() -> None:
    log = io.BytesIO()
    start, _ = await call("/broken", log=log)
    (line,) = (json.loads(text) for text in log.getvalue().splitlines())
    assert (line["event"], line["path"]) == ("endpoint_failed", "/broken")
    assert line["request_id"].encode() == dict(start["headers"])[b"x-request-id"]


async def test_a_fault_behind_the_first_bytes_is_the_servers_to_cut() -> None:
    with pytest.raises(RuntimeError, match="cut"):
        await call("/cut")


async def test_a_client_that_left_is_sent_nothing() -> None:
    assert await call("/left") == []


async def test_documents_are_stored_by_nobody() -> None:
    start, body = await call("/good")
    assert dict(start["headers"])[b"cache-control"] == b"no-store"
    assert json.loads(body["body"]) == {"path": "/good"}


def test_what_is_no_unicode_is_escaped() -> None:
    assert json.loads(encode_json({"name": ["a\udce9"]})) == {"name": ["a\\udce9"]}

"""ASGI helpers of the endpoints: headers, bodies, plain responses and the watch for a disconnected client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol, runtime_checkable

from engine.frontend.request.errors import ApiError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
HeaderList = list[tuple[bytes, bytes]]

JSON = b"application/json"
EVENT_STREAM = b"text/event-stream; charset=utf-8"


CONNECTION_EXTENSION = "engine.connection"
"""Name of the scope extension in which the server passes the connection to the application."""


@runtime_checkable
class ClientConnection(Protocol):
    """Operations on a client's connection that ASGI has no message for."""

    def abort(self) -> None:
        """Close the connection now; buffered data is lost."""

    def close_when_sent(self) -> None:
        """Close the connection after the response that is being sent, or that was sent last."""


class Disconnected(Exception):
    """The client disconnected before its request was complete."""


class Headers:
    """Headers of a request by lower-case name; the first value of each counts."""

    def __init__(self, scope: Scope) -> None:
        self._values: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            self._values.setdefault(name, value)

    def get(self, name: str) -> str | None:
        """Return the header's value, or None if it is absent."""
        value = self._values.get(name.encode("latin-1"))
        return None if value is None else value.decode("latin-1")


async def read_json_body(headers: Headers, receive: Receive, max_bytes: int) -> bytes:
    """Read the whole body of a JSON request.

    Raises:
        ApiError: The media type or encoding is wrong (415) or the body is too long (413); the rest stays unread.
        Disconnected: The client disconnected before the body was complete.
    """
    media_type = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        message = "content-type: expected application/json."
        raise ApiError(415, message, code="unsupported_media_type", headers={"connection": "close"})
    if (headers.get("content-encoding") or "").strip().lower() not in ("", "identity"):
        message = "content-encoding: compressed bodies are not accepted."
        raise ApiError(415, message, code="unsupported_media_type", headers={"connection": "close"})
    declared = headers.get("content-length")
    if declared is not None and int(declared) > max_bytes:  # the HTTP parser accepts only digits here
        raise _too_large(max_bytes)
    body = bytearray()
    while True:
        message_ = await receive()
        if message_["type"] == "http.disconnect":
            raise Disconnected
        body += message_.get("body", b"")
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
        if not message_.get("more_body", False):
            return bytes(body)


async def send_answer(
    send: Send, status: int, body: bytes, headers: Mapping[str, str], content_type: bytes = JSON
) -> None:
    """Send a complete response."""
    await start_answer(send, status, {**headers, "content-length": str(len(body))}, content_type)
    await send({"type": "http.response.body", "body": body})


async def start_answer(send: Send, status: int, headers: Mapping[str, str], content_type: bytes) -> None:
    """Send the status line and the headers."""
    fields: HeaderList = [(b"content-type", content_type)]
    fields += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": fields})


async def send_error(send: Send, error: ApiError) -> None:
    """Send an error's envelope as a complete response."""
    await send_answer(send, error.status, error.body(), error.headers)


class Client:
    """Connection state of a request's client, with a callback for its disconnection."""

    def __init__(self) -> None:
        self.is_gone = False
        self._act: Callable[[], None] | None = None

    def when_gone(self, act: Callable[[], None]) -> None:
        """Register the callback for a disconnection; call it at once if the client is gone already."""
        self._act = act
        if self.is_gone:
            act()

    def leave(self) -> None:
        """Mark the client as gone and call the callback."""
        self.is_gone = True
        if self._act is not None:
            self._act()


@contextlib.asynccontextmanager
async def watched_client(receive: Receive) -> AsyncIterator[Client]:
    """Watch for the client's disconnection until the end of the context.

    The body must have been read before, and nothing else may call `receive`.
    """
    client = Client()

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        client.leave()

    task = asyncio.create_task(watch(), name="disconnect watch")
    try:
        yield client
    finally:
        task.cancel()


def _too_large(max_bytes: int) -> ApiError:
    message = f"The body exceeds the limit of {max_bytes} bytes."
    return ApiError(413, message, code="request_too_large", headers={"connection": "close"})

"""ASGI as this gateway uses it: its types, a few verbs, and what the edge offers a request beyond ASGI.

The edge puts an `EdgeChannel` into `scope["extensions"]["penstock"]`. A relay may use it for speed:

    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for data in upstream:
        if not channel.write(data):          # framed and queued; False: the client reads slower than we write
            await channel.drain()            # until the client has caught up, or is gone
    await send({"type": "http.response.body", "body": b"", "more_body": False})

`write` and `send` may be mixed; plain ASGI does the same for every server, only with one coroutine per chunk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol

from gateway.util.reserved_memory import BodyMemory

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]


class EdgeChannel(Protocol):
    """One request's channel to the edge, beside `receive` and `send`. Valid until the application returns."""

    keep_alive: bool
    """Flag for a reusable connection; False, set before the last byte, closes it behind this response."""

    @property
    def is_gone(self) -> bool:
        """True once the client has closed, half-closed or reset the connection, or the edge gave up on it."""

    @property
    def is_stopping(self) -> bool:
        """True once a drain ran out of time: the request was cancelled and may still send a last event at once."""

    def take_body(self) -> bytes | None:
        """Return the request's body, once, when all of it is here; None when it has to be awaited with `receive`."""

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Call back when the client goes before the response is complete; at once when it is gone already."""

    def off_gone(self, callback: Callable[[], None]) -> None:
        """Take a callback back; unknown ones are ignored."""

    def respond(self, status: int, headers: Iterable[Header], body: bytes) -> bool:
        """Send a whole response in one write, content-length added; False when `drain` should be awaited."""

    def write(self, data: bytes) -> bool:
        """Send response body bytes after `http.response.start`; False when `drain` should be awaited first."""

    async def drain(self) -> None:
        """Return when the write buffer is below its low-water mark again, or the client is gone."""


class BodyTooLarge(Exception):
    """A request body exceeded the limit given to `read_body`."""


class ClientGone(Exception):
    """The client left before its answer was complete."""


def edge_channel(scope: Scope) -> EdgeChannel | None:
    """Return the edge's channel for this request, None behind any other server."""
    extensions = scope.get("extensions")
    return extensions.get("penstock") if extensions else None


def find_header(scope: Scope, name: bytes) -> bytes | None:
    """Value of the first header called `name` (lower case), or None."""
    for key, value in scope["headers"]:
        if key == name:
            return value  # type: ignore[no-any-return]
    return None


def find_headers(scope: Scope, name: bytes) -> list[bytes]:
    """Values of all headers called `name` (lower case), in order."""
    return [value for key, value in scope["headers"] if key == name]


async def read_body(
    receive: Receive, limit: int, channel: EdgeChannel | None = None, room: BodyMemory | None = None
) -> bytes:
    """Read the whole request body.

    Bytes that are not here yet are read only as far as there is `room` for them, and left in the socket otherwise.

    Raises:
        BodyTooLarge: The body is longer than `limit` bytes.
        ClientGone: The body ends early.
    """
    if channel is not None and (body := channel.take_body()) is not None:
        if len(body) > limit:
            raise BodyTooLarge(f"The body exceeds {limit} bytes.")
        return body
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        whole: bytes = message.get("body", b"")
        if len(whole) > limit:
            raise BodyTooLarge(f"The body exceeds {limit} bytes.")
        return whole
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone("The client left while sending the request.")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise BodyTooLarge(f"The body exceeds {limit} bytes.")
        if room is not None:
            await room.cover(size)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)
        message = await receive()


async def respond(send: Send, status: int, headers: Iterable[Header], body: bytes = b"") -> None:
    """Send a whole response; content-length is added here, names must be lower case."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body, "more_body": False})

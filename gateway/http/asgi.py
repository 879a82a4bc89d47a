"""ASGI as this gateway uses it: types, a few verbs, the watch for a client that leaves, and the edge's channel.

The edge puts an `EdgeChannel` into `scope["extensions"]["penstock"]`. A relay may use it for speed:

    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for data in upstream:
        if not channel.write(data):          # framed and queued; False: the client reads slower than we write
            await channel.drain()            # until the client has caught up, or is gone
    await send({"type": "http.response.body", "body": b"", "more_body": False})

`write` and `send` may be mixed; plain ASGI does the same for every server, only with one coroutine per chunk.

    async with until_gone(scope, receive) as client:     # the body is cancelled and ClientGone raised

Inside, request messages are read with `client.receive`. Behind this gateway's own edge that is the server's `receive`
and the watch is one callback in a list. Behind any other server a task owns `receive` (two readers would race) and
hands body messages on, a few at a time; it then sees a disconnect only after the body was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from types import TracebackType
from typing import Any, Final, Protocol, Self

from gateway.util.reserved_memory import BodyMemory

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

_MESSAGES_AHEAD: Final = 4


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


def is_draining(scope: Scope) -> bool:
    """Return whether the process drains; only this gateway's own edge reports that."""
    state = scope.get("state")
    event = state.get("draining") if state else None
    return event is not None and bool(event.is_set())


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


class UntilGone:
    """A watch whose body is cancelled when the client goes; leaving it then raises ClientGone."""

    __slots__ = (
        *("_callbacks", "_cancels_before", "_channel", "_has_cancelled", "_pump", "_task"),
        *("is_gone", "receive", "stays"),
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.is_gone = False
        self.receive = receive
        self.stays: Callable[[Callable[[], None]], bool] | None = None
        """Callback when the client goes, with a function that ends the body; True lets the body run on until then."""
        self._channel: EdgeChannel | None = edge_channel(scope)
        self._pump: _ReceivePump | None = None
        self._has_cancelled = False
        self._callbacks: list[Callable[[], None]] = []

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "an async context manager runs inside a task"
        self._task = task
        self._cancels_before = task.cancelling()
        if self._channel is not None:
            self._channel.on_gone(self._mark_gone)
        else:
            self._pump = _ReceivePump(self.receive, self._mark_gone)
            self.receive = self._pump.receive
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._callbacks.clear()  # bound methods among them would keep this request in a reference cycle
        if self._channel is not None:
            self._channel.off_gone(self._mark_gone)
        if self._pump is not None:
            await self._pump.stop()
        if not self._has_cancelled:
            return
        # Only a cancellation of our own becomes ClientGone; one from outside (a drain) stays a cancellation.
        if self._task.uncancel() <= self._cancels_before and kind is asyncio.CancelledError:
            raise ClientGone("The client left before its answer was complete.") from error

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Call back once when the client goes; at once when it is gone already."""
        if self.is_gone:
            callback()
        else:
            self._callbacks.append(callback)

    def _mark_gone(self) -> None:
        if self.is_gone:
            return
        self.is_gone = True
        stays, self.stays = self.stays, None
        if stays is None or not stays(self._cancel):
            self._cancel()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _cancel(self) -> None:
        self._has_cancelled = True
        self._task.cancel()


def until_gone(scope: Scope, receive: Receive) -> UntilGone:
    """Return a context that runs its body until the client leaves, and then raises ClientGone."""
    return UntilGone(scope, receive)


class _ReceivePump:
    """The one reader of another server's `receive`: passes messages on, reports the disconnect."""

    def __init__(self, receive: Receive, on_disconnect: Callable[[], None]) -> None:
        self._receive = receive
        self._on_disconnect = on_disconnect
        self._messages: asyncio.Queue[Message] = asyncio.Queue(_MESSAGES_AHEAD)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def receive(self) -> Message:
        """Return the next message; after a disconnect, `http.disconnect` again and again."""
        if self._task.done() and self._messages.empty():
            self._task.result()  # what the server's receive raised is the caller's to see
            return {"type": "http.disconnect"}
        return await self._messages.get()

    async def stop(self) -> None:
        """End the reader; whatever it held is dropped with the request."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._on_disconnect()
                await self._messages.put(message)
                return
            await self._messages.put(message)

"""Watching for the client to leave, from the first moment of a request to the last.

    async with until_gone(scope, receive) as client:     # the body is cancelled and ClientGone raised

Inside, request messages are read with `client.receive`. Behind this gateway's own edge that is the server's `receive`
and the watch is one callback in a list. Behind any other server a task owns `receive` (two readers would race) and
hands body messages on, a few at a time; it then sees a disconnect only after the body was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gateway.http.asgi import ClientGone, EdgeChannel, Message, Receive, Scope, edge_channel

_MESSAGES_AHEAD = 4


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

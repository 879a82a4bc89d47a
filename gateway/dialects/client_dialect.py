"""ClientDialect: an API in which clients speak to the gateway, translated to chat completions and back at the edge.

The pipeline serves every dialect: it reads a `ChatRequest` and produces a chat completion, plain or as events. One
`DialectExchange` translates one request. Its answer is translated as it leaves, so that the cache, followers and the
record see chat completions only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from gateway.chat.request import ChatRequest
from gateway.chat.strict_json import LONG_BYTES
from gateway.http.asgi import EdgeChannel, Header
from routing_policies.policy.document import Policy

_EVENT_STREAM: Final = b"text/event-stream"
OK: Final = 200


class DialectExchange(Protocol):
    """One request in its client's dialect, and the answer to it."""

    def parse(self, body: bytes) -> ChatRequest:
        """Translate the body; raises InvalidRequest with the path of the field as the client wrote it.

        It runs on a thread for a long body.
        """

    def headers(self, headers: Sequence[Header]) -> list[Header]:
        """Translate the headers of an answer, which begin with its content type; called before its body comes."""

    def answer(self, completion: bytes) -> bytes:
        """Translate a whole chat completion; raises UpstreamFailed if it is none. On a thread for a long one."""

    def refusal(self, status: int, body: bytes) -> bytes:
        """Translate the error envelope of an answer whose status is not 200."""

    def feed(self, events: bytes) -> bytes:
        """Translate a piece of a stream, cut anywhere; an error event of the gateway or the upstream included."""

    def finish(self, events: bytes) -> bytes:
        """Translate the last piece of a stream, and end it."""


class StateNeeded(Exception):
    """A request refers to earlier answers; `names` are the ids that it refers to, by the path of the field."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


class StatefulExchange:
    """Base of exchanges of an API that keeps answers; the others need none of this."""

    __slots__ = ()

    def enter(self, tenant: str, policy: Policy) -> None:
        """Take the owner of what is kept, and the policy in force; called before `parse`."""
        raise NotImplementedError

    async def recall(self, needed: StateNeeded) -> None:
        """Read what `parse` needs, which is then called again; raises RejectedRequest or Shed."""
        raise NotImplementedError

    async def keep(self, last: bytes) -> bytes:
        """Keep the answer before its last bytes are sent; return these, changed where it could not be kept."""
        raise NotImplementedError


class ClientDialect(Protocol):
    """An API of the public listener."""

    path: str
    """Path of its POST endpoint."""

    def request_headers(self, headers: Sequence[Header]) -> Sequence[Header]:
        """Return the request's headers in the names that the pipeline reads, such as `authorization`."""

    def begin(self, headers: Sequence[Header]) -> DialectExchange:
        """Begin one exchange."""


async def translated_response(
    exchange: DialectExchange, status: int, headers: Sequence[Header], body: bytes
) -> tuple[list[Header], bytes]:
    """Return a whole response in the client's dialect; a thread translates a long one.

    Raises:
        UpstreamFailed: The body is no chat completion.
    """
    own = exchange.headers(headers)  # before the body: an envelope may hold the request id
    translate = _translation(exchange, status, headers)
    found = translate(body) if len(body) <= LONG_BYTES else await asyncio.to_thread(translate, body)
    return own, found


def _translation(exchange: DialectExchange, status: int, headers: Sequence[Header]) -> Callable[[bytes], bytes]:
    """Return the function that translates a response of this status and content type."""
    if status != OK:
        return lambda body: exchange.refusal(status, body)
    if headers and headers[0][1].startswith(_EVENT_STREAM):
        return exchange.finish
    return exchange.answer


class TranslatedChannel:
    """An edge channel whose `write` translates a stream's pieces; whole responses are translated before `respond`."""

    __slots__ = ("_channel", "_exchange")

    def __init__(self, channel: EdgeChannel, exchange: DialectExchange) -> None:
        self._channel = channel
        self._exchange = exchange

    @property
    def keep_alive(self) -> bool:
        """Return whether the connection is reusable behind this response."""
        return self._channel.keep_alive

    @keep_alive.setter
    def keep_alive(self, value: bool) -> None:
        self._channel.keep_alive = value

    @property
    def is_gone(self) -> bool:
        """Return whether the client has left."""
        return self._channel.is_gone

    @property
    def is_stopping(self) -> bool:
        """Return whether a drain ran out of time."""
        return self._channel.is_stopping

    def take_body(self) -> bytes | None:
        """Return the request's body as the client sent it; None when it has to be awaited."""
        return self._channel.take_body()

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Call back when the client leaves."""
        self._channel.on_gone(callback)

    def off_gone(self, callback: Callable[[], None]) -> None:
        """Take a callback back."""
        self._channel.off_gone(callback)

    def respond(self, status: int, headers: Iterable[Header], body: bytes) -> bool:
        """Send a whole, translated response; False when `drain` should be awaited."""
        return self._channel.respond(status, headers, body)

    def write(self, data: bytes) -> bool:
        """Translate and send a piece of a stream; False when `drain` should be awaited first."""
        piece = self._exchange.feed(data)
        return self._channel.write(piece) if piece else True

    async def drain(self) -> None:
        """Return when the client has caught up, or is gone."""
        await self._channel.drain()

"""DirectDialect: an API of another operation, whose answers and events pass unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.chat.request import ChatRequest
from gateway.http.asgi import Header


class DirectExchange:
    """One request whose answer needs no translation; stateless, so that one serves all requests."""

    __slots__ = ("_parse",)

    def __init__(self, parse: Callable[[bytes], ChatRequest]) -> None:
        self._parse = parse

    def parse(self, body: bytes) -> ChatRequest:
        """Return the request in the body; raises InvalidRequest."""
        return self._parse(body)

    def headers(self, headers: Sequence[Header]) -> list[Header]:
        """Return the headers of an answer."""
        return list(headers)

    def answer(self, completion: bytes) -> bytes:
        """Return a whole answer."""
        return completion

    def refusal(self, status: int, body: bytes) -> bytes:
        """Return the error envelope of an answer whose status is not 200."""
        return body

    def feed(self, events: bytes) -> bytes:
        """Return a piece of a stream."""
        return events

    def finish(self, events: bytes) -> bytes:
        """Return the last piece of a stream."""
        return events


class DirectDialect:
    """An API of the public listener that has its own requests, and OpenAI's envelope of errors."""

    __slots__ = ("_exchange", "path")

    def __init__(self, path: str, parse: Callable[[bytes], ChatRequest]) -> None:
        """Create the API at `path`; `parse` returns the request in a body, or raises InvalidRequest."""
        self.path = path
        self._exchange = DirectExchange(parse)

    def request_headers(self, headers: Sequence[Header]) -> Sequence[Header]:
        """Return the request's headers."""
        return headers

    def begin(self, headers: Sequence[Header]) -> DirectExchange:
        """Begin one exchange."""
        return self._exchange

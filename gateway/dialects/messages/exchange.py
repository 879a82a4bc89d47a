"""MessagesDialect: the endpoint `POST /v1/messages`, and MessagesExchange, one request there with its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from gateway.chat.request import ChatRequest
from gateway.dialects.chat_calls import in_tool_calls
from gateway.dialects.messages.answer import message_of
from gateway.dialects.messages.conversation import ChatTurns
from gateway.dialects.messages.errors import envelope
from gateway.dialects.messages.headers import REQUEST_ID, betas_of, in_own_names, with_authorization
from gateway.dialects.messages.request import MessagesParser, client_message
from gateway.dialects.messages.stream import MessageStream
from gateway.http.asgi import Header

MESSAGES_PATH: Final = "/v1/messages"
_THINKS: Final = frozenset({"enabled", "adaptive", "between_tools"})
_HIDDEN: Final = "omitted"


class MessagesDialect:
    """Anthropic's Messages API as clients speak it."""

    path = MESSAGES_PATH

    def __init__(self, parser: MessagesParser, wall: Callable[[], float]) -> None:
        """Create the dialect; `wall` is the wall clock, in seconds since 1970."""
        self._parser = parser
        self._wall = wall

    def request_headers(self, headers: Sequence[Header]) -> Sequence[Header]:
        """Return the headers with the key of `x-api-key` as a bearer key."""
        return with_authorization(headers)

    def begin(self, headers: Sequence[Header]) -> MessagesExchange:
        """Begin one exchange."""
        return MessagesExchange(self._parser, self._wall, headers)


class MessagesExchange:
    """Translation of one request for a message, and of the answer to it."""

    __slots__ = ("_parser", "_request_id", "_sent", "_shows_reasoning", "_stream", "_turns", "_wall")

    def __init__(self, parser: MessagesParser, wall: Callable[[], float], headers: Sequence[Header]) -> None:
        self._parser = parser
        self._wall = wall
        self._sent = headers
        self._request_id: str | None = None
        self._shows_reasoning = False
        self._stream: MessageStream | None = None
        self._turns: ChatTurns | None = None

    def parse(self, body: bytes) -> ChatRequest:
        """Translate the body; raises InvalidRequest with the path of the field as the client wrote it."""
        request, self._turns = self._parser.translate(body, betas_of(self._sent))
        self._shows_reasoning = _wants_reasoning(request.document.get("thinking"))
        return request

    def headers(self, headers: Sequence[Header]) -> list[Header]:
        """Translate the headers of an answer."""
        self._request_id = next((value.decode("ascii") for name, value in headers if name == REQUEST_ID), None)
        return in_own_names(headers, self._wall)

    def answer(self, completion: bytes) -> bytes:
        """Translate a whole chat completion; raises UpstreamFailed if it is none."""
        return message_of(in_tool_calls(completion), shows_reasoning=self._shows_reasoning)

    def refusal(self, status: int, body: bytes) -> bytes:
        """Translate the error envelope of an answer whose status is not 200."""
        turns = self._turns
        own_words = None if turns is None else partial(client_message, turns=turns)
        return envelope(status, body, self._request_id, own_words)

    def feed(self, events: bytes) -> bytes:
        """Translate a piece of a stream, cut anywhere."""
        stream = self._stream
        if stream is None:
            stream = self._stream = MessageStream(shows_reasoning=self._shows_reasoning)
        return stream.feed(events)

    def finish(self, events: bytes) -> bytes:
        """Translate the last piece of a stream, and end it."""
        stream = self._stream or MessageStream(shows_reasoning=self._shows_reasoning)
        return stream.finish(events)


def _wants_reasoning(setting: Any) -> bool:
    if not isinstance(setting, dict):
        return False
    return setting.get("type") in _THINKS and setting.get("display") != _HIDDEN

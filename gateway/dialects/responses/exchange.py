"""ResponsesDialect: the client dialect of `/v1/responses`, and its exchanges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gateway.chat.json_members import encoded
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.chat.strict_json import is_long
from gateway.dialects.client_dialect import StatefulExchange, StateNeeded
from gateway.dialects.responses.answer import response_of
from gateway.dialects.responses.failures import refusal_in_own_words
from gateway.dialects.responses.request import Items, ResponsesParser, ResponsesRequest
from gateway.dialects.responses.response_frame import ResponseFrame
from gateway.dialects.responses.response_store import ResponseStore, StoredResponse
from gateway.dialects.responses.stream import ResponseStream
from gateway.errors import InvalidRequest
from gateway.http.asgi import Header
from routing_policies.policy.document import Policy, StoredResponses

RESPONSES_PATH: Final = "/v1/responses"
_STORED: Final = b'"store":true}'
_NOT_STORED: Final = b'"store":false}'


class ResponsesDialect:
    """The dialect; its requests have the headers of chat completions."""

    path = RESPONSES_PATH

    def __init__(
        self,
        chat: ChatRequestParser,
        store: ResponseStore,
        *,
        wall: Callable[[], float],
        new_token: Callable[[], str],
    ) -> None:
        """Create the dialect.

        Args:
            chat: Parser of what requests become.
            store: Responses that are kept.
            wall: Seconds since 1970.
            new_token: Source of 48 random hexadecimal digits.
        """
        self._parser = ResponsesParser(chat)
        self.store = store
        self._wall = wall
        self._new_token = new_token

    def request_headers(self, headers: Sequence[Header]) -> Sequence[Header]:
        """Return the headers as they are."""
        return headers

    def begin(self, headers: Sequence[Header]) -> ResponsesExchange:
        """Begin one exchange."""
        return ResponsesExchange(self._parser, self.store, self._new_token(), int(self._wall()))


class ResponsesExchange(StatefulExchange):
    """One request of the Responses API, and its answer."""

    __slots__ = (
        *("_body_is_long", "_created_at", "_document", "_frame", "_parser", "_recalled", "_request", "_response"),
        *("_rules", "_store", "_stream", "_tenant", "_token"),
    )

    def __init__(self, parser: ResponsesParser, store: ResponseStore, token: str, created_at: int) -> None:
        """Begin an exchange; `token` makes the ids of its response unique."""
        self._parser = parser
        self._store = store
        self._token = token
        self._created_at = created_at
        self._tenant = ""
        self._rules = StoredResponses()
        self._document: dict[str, Any] | None = None
        self._body_is_long = False
        self._recalled: Mapping[str, Items] = {}
        self._request: ResponsesRequest | None = None
        self._frame: ResponseFrame | None = None
        self._stream: ResponseStream | None = None
        self._response: dict[str, Any] | None = None

    # Of the client dialect

    def parse(self, body: bytes) -> ChatRequest:
        """Translate the body; a second call finds it read.

        Raises:
            InvalidRequest: The body is wrong.
            StateNeeded: It refers to earlier responses.
        """
        if self._document is None:
            self._document = self._parser.read(body)
            self._body_is_long = is_long(body)
        is_whole_long = self._body_is_long or bool(self._recalled)
        request = self._request = self._parser.parse(self._document, self._recalled, is_long=is_whole_long)
        is_stored = self._rules.store and request.wants_store
        self._frame = ResponseFrame(request, self._token, self._created_at, is_stored=is_stored)
        if request.chat.stream:
            self._stream = ResponseStream(self._frame)
        return request.chat

    def headers(self, headers: Sequence[Header]) -> list[Header]:
        """Return the headers as they are."""
        return list(headers)

    def answer(self, completion: bytes) -> bytes:
        """Translate a whole chat completion; raises UpstreamFailed if it is none."""
        assert self._frame is not None, "an answer comes after its request"
        response = response_of(completion, self._frame)
        body = encoded(response)
        self._response = response  # to be kept only once it can be sent
        return body

    def refusal(self, status: int, body: bytes) -> bytes:
        """Return an error envelope with the field in the client's words; no response is kept."""
        self._response = None
        return body if self._request is None else refusal_in_own_words(body, self._request.messages.paths)

    def feed(self, events: bytes) -> bytes:
        """Translate a piece of a stream; raises UpstreamFailed."""
        assert self._stream is not None, "only requests for a stream get one"
        return self._stream.feed(events)

    def finish(self, events: bytes) -> bytes:
        """Translate the last piece of a stream, and end it; raises UpstreamFailed."""
        assert self._stream is not None, "only requests for a stream get one"
        last = self._stream.finish(events)
        self._response, self._stream.response = self._stream.response, None
        return last

    # Of what is kept

    def enter(self, tenant: str, policy: Policy) -> None:
        """Take the tenant, and whether responses are kept."""
        self._tenant = tenant
        self._rules = policy.responses

    async def recall(self, needed: StateNeeded) -> None:
        """Read the responses that the request refers to.

        Raises:
            InvalidRequest: None are kept, or not this one.
            Shed: The store cannot be read.
        """
        if not self._rules.store:
            raise _keeps_nothing(needed)
        self._recalled = await self._store.recall(self._tenant, needed.names)

    async def keep(self, last: bytes) -> bytes:
        """Store the response, where the policy and the client want it."""
        response, request = self._response, self._request
        if response is None or request is None or not response["store"]:
            return last
        self._response = None
        stored = StoredResponse(response, request.items)
        if await self._store.keep(self._tenant, stored, ttl_s=self._rules.ttl_s):
            return last
        head, mark, tail = last.rpartition(_STORED)
        return head + _NOT_STORED + tail if mark else last


def _keeps_nothing(needed: StateNeeded) -> InvalidRequest:
    """Return the refusal of a request that refers to responses while none are kept."""
    path = next(iter(needed.names))
    return InvalidRequest(
        f"`{path}` refers to an earlier response, and this gateway keeps none. Send the whole conversation in `input`, "
        "as clients do with `store: false`, or let the operator set `responses.store` in the policy.",
        param=path,
        code="unsupported_parameter",
    )

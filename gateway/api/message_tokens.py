"""`POST /v1/messages/count_tokens`: the tokens of a conversation, counted by a deployment or estimated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakSet

import msgspec
from starlette.requests import Request

from gateway.access.api_keys import Caller
from gateway.api.json_bodies import JsonBodies
from gateway.chat.json_members import encoded
from gateway.chat.request import ChatRequest
from gateway.deployments.live import LiveDeployment
from gateway.deployments.price import Pricer
from gateway.dialects.messages.errors import envelope
from gateway.dialects.messages.headers import in_own_names, with_authorization
from gateway.dialects.messages.request import MessagesParser
from gateway.dialects.messages.schema import CountedTokens
from gateway.dialects.messages.upstream.dialect import AnthropicDialect
from gateway.errors import GatewayError, InternalError, InvalidRequest, MethodNotAllowed, error_body, error_headers
from gateway.http.asgi import ClientGone, Header, Receive, Scope, Send, find_headers, respond
from gateway.limits.body_budget import NOBODY
from gateway.routing.deployment_dialects import CHAT_DIALECT
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.snapshot import PolicySnapshot
from gateway.telemetry.logs.log import LogWriter
from gateway.timeline import RequestIds
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest
from gateway.util.workers import Workers

COUNT_TOKENS_PATH: Final = "/v1/messages/count_tokens"
_TOKENIZE: Final = b"/tokenize"
_TIMEOUTS: Final = ExchangeTimeouts(connect_s=1.0, first_byte_s=5.0, inter_chunk_s=5.0, total_s=10.0)
_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
_LACKING: Final = frozenset({404, 405, 501})
"""Statuses of a server without the endpoint."""
_JSON: Final[tuple[Header, ...]] = ((b"content-type", b"application/json"), (b"accept", b"application/json"))
_CONVERSATION: Final = ("messages", "tools")


class _Tokens(msgspec.Struct):
    """Answer of a deployment: the bundled engine's and vLLM's, or Anthropic's."""

    count: int | None = None
    input_tokens: int | None = None


_decode: Final = msgspec.json.Decoder(_Tokens).decode


class TokenCounter:
    """Counter of a request's tokens: exact where a deployment of the route can count, else an estimate."""

    def __init__(self, pricer: Pricer) -> None:
        """Create a counter; `pricer` estimates by what deployments reported of earlier requests."""
        self._pricer = pricer
        self._lacking: WeakSet[LiveDeployment] = WeakSet()
        """Deployments without an endpoint that counts."""

    async def count(self, request: ChatRequest, planned: PlannedRoute, caller: Caller) -> int:
        """Return the number of tokens of the request's prompt."""
        for live, _ in planned.candidates:
            if live.is_ready and not live.is_draining and live not in self._lacking:
                found = await self._request_count(live, request)
                if found is not None:
                    return found
        return self._pricer.price(request, tenant=caller.tenant, route=planned.route.id).prompt_tokens

    async def _request_count(self, live: LiveDeployment, request: ChatRequest) -> int | None:
        """Return the deployment's count; None if it has none for this request."""
        question = _question(live, request)
        if question is None:
            return None
        try:
            async with await live.client.send(question, _TIMEOUTS) as response:
                body, status = await response.read(_MAX_ANSWER_BYTES), response.status
        except UpstreamError:
            return None  # whoever sends it the request learns what is wrong with it
        if status in _LACKING:
            self._lacking.add(live)
        if status != 200:
            return None
        try:
            answer = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._lacking.add(live)
            return None
        return answer.input_tokens if answer.count is None else answer.count


class MessageTokens:
    """The ASGI application of the endpoint; its errors have the envelope of the Messages API."""

    path = COUNT_TOKENS_PATH

    def __init__(
        self,
        policy: Callable[[], PolicySnapshot],
        parser: MessagesParser,
        counter: TokenCounter,
        bodies: JsonBodies,
        workers: Workers,
        *,
        max_bytes: int,
        ids: RequestIds,
        log: LogWriter,
    ) -> None:
        self._policy = policy
        self._parser = parser
        self._counter = counter
        self._bodies = bodies
        self._workers = workers
        self._max_bytes = max_bytes
        self._ids = ids
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request_id = self._ids.next()
        status, headers, body = 200, list(_JSON[:1]), b""
        try:
            body = msgspec.json.encode(CountedTokens(await self._count(scope, receive)))
        except GatewayError as error:
            status, headers, body = _refused(error, request_id)
        except ClientGone:
            return
        except Exception as error:  # our own fault, whatever it is: the client gets an id, the log the cause
            self._log.failure("endpoint_failed", error, request_id=request_id, path=COUNT_TOKENS_PATH)
            status, headers, body = _refused(InternalError(request_id), request_id)
        named = in_own_names([*headers, (b"x-request-id", request_id.encode("ascii"))], lambda: 0.0)
        await respond(send, status, named, b"" if scope["method"] == "HEAD" else body)

    async def _count(self, scope: Scope, receive: Receive) -> int:
        if scope["method"] != "POST":
            raise MethodNotAllowed(scope["method"], ["POST"])
        scope = {**scope, "headers": with_authorization(scope["headers"])}
        snapshot, client = self._policy(), scope.get("client")
        caller = snapshot.keys.authenticate(find_headers(scope, b"authorization"), client[0] if client else None)
        request = Request(scope, receive)
        async with self._bodies.read(request, caller.tenant or NOBODY, self._max_bytes) as document:
            question = await self._workers.run(self._parser.parse_count, document)
            headers = dict(request.headers) if snapshot.router.reads_headers else {}
            planned = snapshot.router.match(question.model, caller.tenant, headers)
            return await self._counter.count(question, planned, caller)


def _refused(error: GatewayError, request_id: str) -> tuple[int, list[Header], bytes]:
    return error.status, error_headers(error), envelope(error.status, error_body(error), request_id)


def _question(live: LiveDeployment, request: ChatRequest) -> UpstreamRequest | None:
    """Return the request for the deployment's count; None if it cannot be given this conversation."""
    try:
        if isinstance(live.dialect, AnthropicDialect):
            path, body = live.path_of(live.dialect.count_path), live.dialect.count_body(request, live.model)
            sent: Sequence[Header] = (*live.dialect.headers(live.headers.sent), *live.dialect.request_headers(request))
            return UpstreamRequest(b"POST", path, (), body, (*_JSON, *sent))
        if live.dialect is not None:
            return None
        plain = request.in_dialect(CHAT_DIALECT).document
    except InvalidRequest:
        return None
    given: dict[str, Any] = {name: plain[name] for name in _CONVERSATION if name in plain}
    body = encoded({**given, "model": live.model})
    path = live.root_path + _TOKENIZE
    return UpstreamRequest(b"POST", path, (), body, (*_JSON, *live.headers.sent), is_at_root=True)

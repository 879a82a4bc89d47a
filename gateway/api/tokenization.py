"""`POST /tokenize` and `POST /detokenize`: prompts to tokens and back, by a deployment that has these endpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.access.api_keys import Caller
from gateway.api.application import NO_STORE
from gateway.api.json_bodies import JsonBodies
from gateway.chat.conversion import invalid_field
from gateway.chat.fields.table import FIELD_RULES, FieldRule
from gateway.chat.request import check_privileged
from gateway.deployments.live import LiveDeployment
from gateway.errors import GatewayError, NotFound, Shed, ShedReason
from gateway.forwarding.error_mapping import enveloped, from_status, from_transport, without_secrets
from gateway.http.asgi import find_headers
from gateway.limits.body_budget import NOBODY
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.snapshot import PolicySnapshot
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest
from routing_policies.matching import AUTO
from routing_policies.policy.values import ModelName

TOKENIZE_PATH: Final = "/tokenize"
DETOKENIZE_PATH: Final = "/detokenize"

_TIMEOUTS: Final = ExchangeTimeouts(connect_s=5.0, first_byte_s=30.0, inter_chunk_s=10.0, total_s=60.0)
_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
_LACKING: Final = frozenset({404, 405, 501})
"""Statuses of a server without the endpoint."""
_RULES: Final = {
    "model": FIELD_RULES["model"],
    "prompt": FieldRule(type="string", gateway="checks", engine="serves"),
    "messages": FieldRule(type="list", gateway="checks", engine="serves"),
    "messages[]": FieldRule(type="object", gateway="checks", engine="serves"),
    "add_special_tokens": FieldRule(type="boolean", gateway="checks", engine="serves"),
    "return_token_strs": FieldRule(type="boolean", gateway="checks", engine="serves"),
    "tokens": FieldRule(type="list", gateway="checks", engine="serves"),
    "tokens[]": FieldRule(type="integer", gateway="checks", engine="serves"),
}
_FIXED: Final = ((b"content-type", b"application/json"), (b"accept", b"application/json"))


class TokenizeBody(msgspec.Struct, frozen=True):
    """A raw prompt, or a conversation to render, whose tokens are wanted; further members go upstream unchanged."""

    model: ModelName | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenList(msgspec.Struct, frozen=True):
    """The tokens of a prompt."""

    count: int
    tokens: list[int]
    max_model_len: int | None = None
    token_strs: list[str] | None = None


class DetokenizeBody(msgspec.Struct, frozen=True):
    """Tokens whose text is wanted."""

    tokens: list[int]
    model: ModelName | None = None


class DetokenizedText(msgspec.Struct, frozen=True):
    """The text of tokens."""

    prompt: str


class TokenizationHandlers:
    """Handlers that pass requests on to the first ready deployment of the model's route that has the endpoint.

    Such a request takes no permit and no quota: it generates nothing.
    """

    def __init__(self, policy: Callable[[], PolicySnapshot], bodies: JsonBodies, max_bytes: int) -> None:
        self._policy = policy
        self._bodies = bodies
        self._max_bytes = max_bytes

    async def tokenize(self, request: Request) -> Response:
        """Return the tokens of a prompt. Raises GatewayError."""
        return await self._serve(request, TOKENIZE_PATH, TokenizeBody)

    async def detokenize(self, request: Request) -> Response:
        """Return the text of tokens. Raises GatewayError."""
        return await self._serve(request, DETOKENIZE_PATH, DetokenizeBody)

    async def _serve(self, request: Request, path: str, kind: type[TokenizeBody] | type[DetokenizeBody]) -> Response:
        snapshot = self._policy()
        host = request.client.host if request.client else None
        caller = snapshot.keys.authenticate(find_headers(request.scope, b"authorization"), host)
        async with self._bodies.read(request, caller.tenant or NOBODY, self._max_bytes) as document:
            check_privileged(document)
            try:
                model = msgspec.convert(document, kind).model or AUTO
            except msgspec.ValidationError as error:
                raise invalid_field(str(error), document, _RULES) from None
            planned = self._match(snapshot, model, caller, request)
            return await _first_answer(planned, model, path, document)

    def _match(self, snapshot: PolicySnapshot, model: str, caller: Caller, request: Request) -> PlannedRoute:
        headers = dict(request.headers) if snapshot.router.reads_headers else {}
        return snapshot.router.match(model, caller.tenant, headers)


async def _first_answer(planned: PlannedRoute, model: str, path: str, document: dict[str, Any]) -> Response:
    """Return the answer of the first deployment that has the endpoint.

    Raises:
        NotFound: No deployment of the route has it.
        Shed: None is ready.
        GatewayError: Those that have it failed.
    """
    members = [live for live, _ in planned.candidates]
    ready = [live for live in members if live.is_ready and not live.is_draining]
    if not ready:
        hint = "The same request at a later time."
        message = f"No deployment of route '{planned.route.id}' is ready. Try again later."
        raise Shed(ShedReason.OVERLOAD, lane="", message=message, hint=hint)
    failure: GatewayError | None = None
    for live in ready:
        try:
            answer = await _answer_of(live, path, document, live.model_with(planned.adapter))
        except GatewayError as error:
            failure = error
            continue
        if answer is not None:
            return answer
    if failure is not None:
        raise failure
    names = ", ".join(f"'{live.id}'" for live in ready)
    raise NotFound(
        f"No deployment of model '{model}' has {path}: {names} answered that there is no such endpoint. "
        "Name a model that the bundled engine or vLLM serves, or count tokens with the model's own tokenizer.",
        param="model",
    )


async def _answer_of(live: LiveDeployment, path: str, document: dict[str, Any], model: str) -> Response | None:
    """Return one deployment's answer for its name of the model; None if it lacks the endpoint. Raises GatewayError."""
    request = UpstreamRequest(
        b"POST",
        live.root_path + path.encode("ascii"),
        (),
        msgspec.json.encode({**document, "model": model}),
        (*_FIXED, *live.headers.sent),
        is_at_root=True,
    )
    try:
        async with await live.client.send(request, _TIMEOUTS) as response:
            body = await response.read(_MAX_ANSWER_BYTES)
    except UpstreamError as error:
        raise from_transport(error, live.id) from None
    status = response.status
    if status in _LACKING:
        return None
    if status != 200:
        failure = from_status(status, response.headers, live.id, "")
        if failure is not None:
            raise failure
        body = without_secrets(enveloped(body, status, live.id), live.headers.secrets)
    headers = {**NO_STORE, "x-penstock-deployment": live.id}
    return Response(body, status, headers, media_type="application/json")

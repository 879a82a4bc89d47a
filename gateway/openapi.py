"""The public API as an OpenAPI 3.1 document; its schemas come from the structs that parse requests."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from gateway.chat_fields import PRIVILEGED_FIELDS, ChatFields, ToolCall
from gateway.errors import ErrorEnvelope, ShedReason
from gateway.public import CHAT_PATH, MODELS_PATH, Model, ModelList

_REF: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"

Json = dict[str, Any]


class AnswerMessage(msgspec.Struct, frozen=True):
    """What the model said."""

    role: Literal["assistant"]
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None


class Choice(msgspec.Struct, frozen=True):
    """One of the answers."""

    index: int
    message: AnswerMessage
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]
    logprobs: dict[str, Any] | None = None


class CompletionUsage(msgspec.Struct, frozen=True):
    """Tokens, as the deployment counted them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(msgspec.Struct, frozen=True):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionUsage | None = None


class ProbeState(msgspec.Struct, frozen=True):
    """What a probe found."""

    status: Literal["live", "ready", "started"]
    policy: str | None = None
    deployments: dict[str, bool] | None = None


_ERRORS: Final[dict[int, str]] = {
    400: "The request is wrong: `invalid_json`, `invalid_value`, `unsupported_parameter` (see `param`), "
    "`context_length_exceeded`, or `invalid_request` for malformed HTTP.",
    401: "No valid API key: `invalid_api_key`.",
    403: "The key may not use the model: `model_not_allowed`.",
    404: "No such model (`model_not_found`) or path (`not_found`).",
    405: "`method_not_allowed`; see `allow`.",
    408: "The request came too slowly: `request_timeout`.",
    413: "`request_too_large`.",
    414: "`uri_too_long`.",
    415: "Not plain JSON: `unsupported_media_type`.",
    417: "`invalid_request`: an expectation that is not served.",
    429: "A limit of the deployment, passed on.",
    431: "`headers_too_large`.",
    500: "`internal_error`, with the request id.",
    502: "The deployment failed: `upstream_error`.",
    503: "Refused for load: `server_is_overloaded`. `error.degraded` says why and what would have been admitted.",
    504: "The deployment was too late: `upstream_timeout`.",
}
_EDGE_ERRORS: Final = (400, 405, 408, 413, 414, 415, 417, 431, 500, 503)
_CHAT_ERRORS: Final = tuple(_ERRORS)

_HEADERS: Final[dict[str, str]] = {
    "x-penstock-cache": "hit-exact, hit-semantic, miss or bypass",
    "x-penstock-deployment": "Who answered",
    "x-penstock-route": "Which route of the policy matched",
    "x-penstock-policy": "Policy revision",
    "server-timing": "Milliseconds by stage up to the first byte",
}
_SHED_HEADERS: Final[dict[str, str]] = {
    "retry-after": "Seconds, from the drain rate of the request's own lane",
    "retry-after-ms": "The same in milliseconds",
    "x-should-retry": "false where a retry cannot help",
    "x-penstock-shed-reason": ", ".join(ShedReason),
}
_REQUEST_HEADERS: Final[dict[str, str]] = {
    "x-stainless-read-timeout": "Seconds the client waits for a byte; work that would begin later is not started",
    "x-stainless-timeout": "The same, where the other is absent",
    "x-stainless-retry-count": "Above 0 marks a retry",
    "x-penstock-priority": "The lane, within what the key may use",
    "x-penstock-timing": "`full` adds every stage's time to the answer",
    "x-client-request-id": "A label for the log",
    "traceparent": "W3C trace context, passed on",
    "tracestate": "W3C trace context, passed on",
}


def openapi_document() -> Json:
    """The document, as values that encode to JSON."""
    structs = (ChatFields, ChatCompletion, ModelList, Model, ProbeState, ErrorEnvelope)
    _, schemas = msgspec.json.schema_components(structs, ref_template=_REF)
    _add_relations(schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": "1",
            "description": "One OpenAI-compatible chat endpoint. Every error has the same envelope.",
        },
        "security": [{"key": []}],
        "paths": {
            CHAT_PATH: {"post": _chat()},
            MODELS_PATH: {"get": _get("listModels", "The models this key may call.", ModelList, (401,))},
            MODELS_PATH + "/{model}": {
                "get": _get("getModel", "One model.", Model, (401, 404)),
                "parameters": [_parameter("model", "path", "Its name", required=True)],
            },
            "/livez": {"get": _probe("livez", "The process answers.")},
            "/readyz": {"get": _probe("readyz", "Requests can be served.")},
            "/startupz": {"get": _probe("startupz", "The start has finished.")},
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _add_relations(schemas: Json) -> None:
    """What `gateway.request` checks beyond the types of single fields."""
    chat = schemas["ChatFields"]
    chat["not"] = {"anyOf": [{"required": [name]} for name in sorted(PRIVILEGED_FIELDS)]}
    chat["allOf"] = [_only_with("top_logprobs", "logprobs"), _only_with("stream_options", "stream")]
    schemas["AssistantMessage"]["anyOf"] = [
        _given("content", {"not": {"type": "null"}}),
        _given("tool_calls", {"type": "array", "minItems": 1}),
        _given("function_call", {"type": "object"}),
        _given("refusal", {"type": "string"}),
    ]


def _given(name: str, schema: Json) -> Json:
    return {"required": [name], "properties": {name: schema}}


def _only_with(name: str, switch: str) -> Json:
    """`name` is allowed only where `switch` is true."""
    return {"if": _given(name, {"not": {"type": "null"}}), "then": _given(switch, {"const": True})}


def _chat() -> Json:
    answer = _response("The answer, or a stream of `data:` events that ends with `data: [DONE]`.", ChatCompletion)
    answer["headers"] |= _headers(_HEADERS)
    answer["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return {
        "operationId": "createChatCompletion",
        "summary": "Answer a conversation.",
        "parameters": [_parameter(name, "header", text) for name, text in _REQUEST_HEADERS.items()],
        "requestBody": {"required": True, "content": {_JSON: {"schema": _ref(ChatFields)}}},
        "responses": {"200": answer, **_errors(_CHAT_ERRORS)},
    }


def _get(operation_id: str, summary: str, kind: type, errors: tuple[int, ...]) -> Json:
    statuses = tuple(sorted({*_EDGE_ERRORS, *errors}))
    return {
        "operationId": operation_id,
        "summary": summary,
        "responses": {"200": _response(summary, kind), **_errors(statuses)},
    }


def _probe(operation_id: str, summary: str) -> Json:
    return {**_get(operation_id, summary, ProbeState, (503,)), "security": []}


def _errors(statuses: tuple[int, ...]) -> Json:
    return {str(status): _error(status) for status in statuses}


def _error(status: int) -> Json:
    response = _response(_ERRORS[status], ErrorEnvelope)
    response["headers"] |= _headers({"x-penstock-error-code": "Repeats `code` when the gateway itself decided"})
    if status == 503:
        response["headers"] |= _headers(_SHED_HEADERS)
    if status == 405:
        response["headers"] |= _headers({"allow": "Methods that would have worked"})
    if status == 401:
        response["headers"] |= _headers({"www-authenticate": "Bearer"})
    return response


def _response(description: str, kind: type) -> Json:
    return {
        "description": description,
        "headers": _headers({"x-request-id": "Made by the gateway"}),
        "content": {_JSON: {"schema": _ref(kind)}},
    }


def _headers(texts: dict[str, str]) -> Json:
    return {name: {"description": text, "schema": {"type": "string"}} for name, text in texts.items()}


def _parameter(name: str, place: str, text: str, *, required: bool = False) -> Json:
    return {"name": name, "in": place, "required": required, "description": text, "schema": {"type": "string"}}


def _ref(kind: type) -> Json:
    return {"$ref": _REF.format(name=kind.__name__)}

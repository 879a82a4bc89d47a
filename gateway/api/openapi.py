"""The public API as an OpenAPI 3.1 document; its schemas come from the structs that parse requests."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from gateway.api.feedback import FEEDBACK_PATH, Feedback, Noted
from gateway.api.message_tokens import COUNT_TOKENS_PATH
from gateway.api.models import MODELS_PATH, ListedModel, ModelList
from gateway.api.responses_schema import ResponseObject, ResponsesFields
from gateway.api.routes import CHAT_PATH
from gateway.api.stored_responses import INPUT_ITEMS_PATH, RESPONSE_PATH, DeletedResponse, ResponseItems
from gateway.api.tokenization import (
    DETOKENIZE_PATH,
    TOKENIZE_PATH,
    DetokenizeBody,
    DetokenizedText,
    TokenizeBody,
    TokenList,
)
from gateway.chat.fields.table import FIELD_RULES, PRIVILEGED_FIELDS
from gateway.chat.schema import KNOWN_PARTS, OTHER_PART, ChatFields, ChatToolCall
from gateway.dialects.completions.dialect import COMPLETIONS_PATH
from gateway.dialects.completions.schema import CompletionFields
from gateway.dialects.embeddings.dialect import EMBEDDINGS_PATH
from gateway.dialects.embeddings.schema import EmbeddingFields, EmbeddingList
from gateway.dialects.messages.exchange import MESSAGES_PATH
from gateway.dialects.messages.schema import (
    CountedTokens,
    CountTokensFields,
    MessageAnswer,
    MessageErrorEnvelope,
    MessageFields,
)
from gateway.dialects.responses.exchange import RESPONSES_PATH
from gateway.errors import ErrorEnvelope, ShedReason
from gateway.telemetry.records.record import CacheResult
from routing_policies.matching import AUTO
from routing_policies.policy.document import ModelName

_REF: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"

Json = dict[str, Any]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class AnswerMessage(msgspec.Struct, frozen=True):
    """The model's answer."""

    role: Literal["assistant"]
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[ChatToolCall] | None = None


class ChoiceSchema(msgspec.Struct, frozen=True):
    """One choice of an answer."""

    index: int
    message: AnswerMessage
    finish_reason: FinishReason
    logprobs: dict[str, Any] | None = None


class CompletionUsage(msgspec.Struct, frozen=True):
    """Tokens, as the deployment counted them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class DeltaSchema(msgspec.Struct, frozen=True):
    """The part of an answer that one event adds."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ChunkChoice(msgspec.Struct, frozen=True):
    """The part of one choice that an event adds."""

    index: int
    delta: DeltaSchema
    finish_reason: FinishReason | None = None
    logprobs: dict[str, Any] | None = None


class ChatCompletionChunk(msgspec.Struct, frozen=True):
    """One event of a stream; with `include_usage` the last one has no choices and the usage."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: CompletionUsage | None = None


class ChatCompletion(msgspec.Struct, frozen=True):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChoiceSchema]
    usage: CompletionUsage | None = None


class InstalledVersion(msgspec.Struct, frozen=True):
    """The version of this gateway."""

    version: str


class TextChoice(msgspec.Struct, frozen=True):
    """One choice of a text completion, or the part of it that an event adds."""

    index: int
    text: str
    finish_reason: FinishReason | None = None
    logprobs: dict[str, Any] | None = None


class TextCompletion(msgspec.Struct, frozen=True):
    """A whole text completion, or one event of its stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: CompletionUsage | None = None


class ProbeState(msgspec.Struct, frozen=True):
    """The result of a probe."""

    status: Literal["live", "ready", "started"]
    policy: str | None = None
    deployments: dict[str, bool] | None = None


_REQUESTS: Final = (ChatFields, CompletionFields, EmbeddingFields)

_ERRORS: Final[dict[int, str]] = {
    400: "The request is wrong: `invalid_json`, `invalid_value`, `unsupported_parameter` (see `param`), "
    "`context_length_exceeded`, `unsupported_operation`, or `invalid_request` for malformed HTTP.",
    401: "No valid API key: `invalid_api_key`.",
    403: "The key may not use the model: `model_not_allowed`.",
    404: "No such model (`model_not_found`) or path (`not_found`).",
    405: "`method_not_allowed`; see `allow`.",
    408: "The request came too slowly: `request_timeout`.",
    413: "`request_too_large`.",
    414: "`uri_too_long`.",
    415: "Not plain JSON: `unsupported_media_type`.",
    417: "`invalid_request`: an expectation that is not served.",
    429: "The tenant's own limit (`rate_limit_exceeded`) or budget (`insufficient_quota`), or the deployment's limit, "
    "passed on.",
    431: "`headers_too_large`.",
    500: "`internal_error`, with the request id.",
    502: "The deployment failed: `upstream_error`.",
    503: "Refused for load: `server_is_overloaded`. `error.degraded` names why, and what would be admitted.",
    504: "The deployment was too late: `upstream_timeout`.",
}
_EDGE_ERRORS: Final = (400, 405, 408, 413, 414, 415, 417, 431, 500, 503)
_CHAT_ERRORS: Final = tuple(_ERRORS)

_ANY_TEXT: Final[Json] = {"type": "string"}
_TEXT: Final[Json] = {"type": "string", "minLength": 1}
_MODEL_NAME: Final[Json] = msgspec.json.schema(ModelName)
_BOOLEAN: Final[Json] = {"type": "string", "enum": ["true", "false"]}

_NAMING: Final = frozenset({"arguments", "id", "name", "url"})
"""Members that count even as an empty list or object, because they say what their object is."""
_NO_NAME: Final[Json] = {"enum": [None, ""]}

_REQUEST_ID: Final[dict[str, tuple[str, Json]]] = {
    "x-request-id": ("Made by the gateway", {"type": "string", "pattern": "^req_[A-Za-z0-9]+$"}),
}
_HEADERS: Final[dict[str, tuple[str, Json]]] = {
    "x-penstock-cache": ("What the cache did", {"enum": [result.header.decode() for result in CacheResult]}),
    "x-penstock-deployment": ("Who answered", _TEXT),
    "x-penstock-route": ("Which route of the policy matched", _TEXT),
    "x-penstock-policy": ("Policy revision", _TEXT),
    "server-timing": ("Milliseconds by stage up to the first byte", _TEXT),
}
_SOME_HEADERS: Final[dict[str, tuple[str, Json]]] = {
    "x-penstock-degraded": ("Steps by which the answer was made cheaper under load", _TEXT),
    "x-penstock-trimmed": ("What trimming removed, such as `tokens=120;strategies=minify`", _TEXT),
}
_ERROR_CODE: Final[dict[str, tuple[str, Json]]] = {
    "x-penstock-error-code": ("Repeats `code` when, and only when, the gateway itself decided", _TEXT),
}
_RETRY_HEADERS: Final[dict[str, tuple[str, Json]]] = {
    "retry-after": ("Seconds until there is room, as far as is known", {"type": "integer", "minimum": 1}),
    "retry-after-ms": ("The same in milliseconds", {"type": "integer", "minimum": 1000}),
    "x-should-retry": ("false where a retry cannot help", _BOOLEAN),
}
_RATE_HEADERS: Final[dict[str, tuple[str, Json]]] = {
    f"x-ratelimit-{what}-{unit}": (f"{text}; for tenants with such a limit", schema)
    for unit in ("requests", "tokens")
    for what, text, schema in (
        ("limit", f"How many {unit} a minute may have", {"type": "integer", "minimum": 1}),
        ("remaining", f"How many {unit} are left of them", {"type": "integer", "minimum": 0}),
        ("reset", "How long until the whole limit is free, such as `12ms` or `6m0s`", _TEXT),
    )
}
_MESSAGE_LIMITS: Final[dict[str, tuple[str, Json]]] = {
    f"anthropic-ratelimit-{unit}-{what}": (f"{text}; for tenants with such a limit", schema)
    for unit in ("requests", "tokens")
    for what, text, schema in (
        ("limit", f"How many {unit} a minute may have", {"type": "integer", "minimum": 1}),
        ("remaining", f"How many {unit} are left of them", {"type": "integer", "minimum": 0}),
        ("reset", "Instant at which the whole limit is free", {"type": "string", "format": "date-time"}),
    )
}
_SHED_HEADERS: Final[dict[str, tuple[str, Json]]] = {
    **_RETRY_HEADERS,
    "x-penstock-shed-reason": ("Why", {"enum": [reason.value for reason in ShedReason]}),
}
_ABSENT: Final[Json] = {"$ref": _REF.format(name="Absent")}
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
_MESSAGE_HEADERS: Final[dict[str, str]] = {
    **_REQUEST_HEADERS,
    "x-api-key": "The API key, where there is no `authorization`",
    "anthropic-version": "Accepted; any version, or none",
    "anthropic-beta": "Passed on to deployments of Anthropic's API",
}


def openapi_document(*, needs_key: bool = True) -> Json:
    """Return the document, as values that encode to JSON; `needs_key` is true if the policy has keys."""
    structs = (
        *(ChatFields, ChatCompletion, ChatCompletionChunk, ModelList, ListedModel, ProbeState, ErrorEnvelope),
        *(CompletionFields, TextCompletion, EmbeddingFields, EmbeddingList),
        *(Feedback, Noted, TokenizeBody, TokenList, DetokenizeBody, DetokenizedText, InstalledVersion),
        *(MessageFields, CountTokensFields, MessageAnswer, CountedTokens, MessageErrorEnvelope),
        *(ResponsesFields, ResponseObject, DeletedResponse, ResponseItems),
    )
    _, schemas = msgspec.json.schema_components(structs, ref_template=_REF)
    _allow_absent(schemas)
    _add_relations(schemas)
    _describe_fields(schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": "1",
            "description": "OpenAI-compatible endpoints. Every error has the same envelope. "
            "A request header with a malformed value counts as absent.",
        },
        "security": [{"key": []}] if needs_key else [],
        "paths": {
            CHAT_PATH: {"post": _chat()},
            **_responses_paths(),
            COMPLETIONS_PATH: {"post": _completions()},
            EMBEDDINGS_PATH: {"post": _embeddings()},
            MODELS_PATH: {"get": _get("listModels", "The models this key may call.", ModelList, (401,))},
            MODELS_PATH + "/{model}": {
                "get": _get("getModel", "One model.", ListedModel, (401, 404)),
                "parameters": [_parameter("model", "path", "Its name", schema=_MODEL_NAME, required=True)],
            },
            FEEDBACK_PATH: {"post": _feedback()},
            TOKENIZE_PATH: {"post": _conversion("tokenize", "The tokens of a prompt.", TokenizeBody, TokenList)},
            DETOKENIZE_PATH: {
                "post": _conversion("detokenize", "The text of tokens.", DetokenizeBody, DetokenizedText)
            },
            MESSAGES_PATH: {"post": _messages()},
            COUNT_TOKENS_PATH: {"post": _count_tokens()},
            "/livez": {"get": _probe("livez", "The process answers.")},
            "/readyz": {"get": _probe("readyz", "Requests can be served.")},
            "/startupz": {"get": _probe("startupz", "The start has finished.")},
            "/health": {"get": _probe("health", "Requests can be served, as of `/readyz`.")},
            "/version": {
                "get": {**_get("version", "The version of this gateway.", InstalledVersion, ()), "security": []}
            },
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _allow_absent(schemas: Json) -> None:
    """Let every optional member of a request be null or empty, which is as good as absent."""
    names, found = [kind.__name__ for kind in _REQUESTS], set[str]()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            names += _referred(schemas[name])
    for name in found:
        schema = schemas[name]
        for member, allowed in schema.get("properties", {}).items():
            if member not in schema.get("required", ()):
                absent = _NO_NAME if member in _NAMING else _ABSENT
                schema["properties"][member] = {"anyOf": [allowed, absent]}
    schemas["Absent"] = {
        "description": "As good as absent: null, or empty.",
        "anyOf": [
            {"enum": [None, "", []]},
            {"type": "object", "maxProperties": 0},
        ],
    }


def _referred(schema: Any) -> list[str]:
    """Return the names of the components that a schema refers to, at any depth."""
    if isinstance(schema, dict):
        own = [schema["$ref"].rpartition("/")[2]] if isinstance(schema.get("$ref"), str) else []
        return own + [name for value in schema.values() for name in _referred(value)]
    return [name for value in schema for name in _referred(value)] if isinstance(schema, list) else []


def _describe_fields(schemas: Json) -> None:
    """Tell of each top-level field of the table who acts on it."""
    members = schemas["ChatFields"]["properties"]
    for path, rule in FIELD_RULES.items():
        if path.isidentifier() and path not in PRIVILEGED_FIELDS:
            members[path] = {**members.get(path, {}), "description": rule.meaning}


def _add_relations(schemas: Json) -> None:
    """Add the relations between fields that `gateway.chat.conversion` checks."""
    chat = schemas["ChatFields"]
    chat["properties"]["model"]["examples"] = [AUTO]
    for request in _REQUESTS:
        schemas[request.__name__]["not"] = {"anyOf": [{"required": [name]} for name in sorted(PRIVILEGED_FIELDS)]}
    schemas[CompletionFields.__name__]["allOf"] = [_only_with("stream_options", "stream")]
    kind = {"type": "string", "not": {"enum": sorted(KNOWN_PARTS - {OTHER_PART})}}
    schemas["OtherPart"] |= {"required": ["type"], "properties": {"type": kind}}
    is_function = _given("type", {"const": "function"})
    for name in ("ChatTool", "ChatToolCall"):
        schemas[name] |= {"if": is_function, "then": _given("function", {"not": _ABSENT})}
    arguments = schemas["ChatFunctionCall"]["properties"]["arguments"]
    schemas["ChatFunctionCall"]["properties"]["arguments"] = {"anyOf": [arguments, {"type": "null"}]}
    chat["allOf"] = [_only_with("top_logprobs", "logprobs"), _only_with("stream_options", "stream")]
    schemas["AssistantMessage"]["anyOf"] = [
        _given("content", {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1}]}),
        _given("tool_calls", {"type": "array", "minItems": 1}),
        _given("function_call", {"type": "object", "not": _ABSENT}),
        _given("refusal", {"type": "string", "minLength": 1}),
    ]


def _given(name: str, schema: Json) -> Json:
    return {"required": [name], "properties": {name: schema}}


def _only_with(name: str, switch: str) -> Json:
    """Allow `name` only where `switch` is true."""
    return {"if": _given(name, {"not": _ABSENT}), "then": _given(switch, {"const": True})}


def _chat() -> Json:
    answer = _response(
        "The answer; with `stream` a series of events `data: {ChatCompletionChunk}` that ends with `data: [DONE]`, "
        "or, where a failure cuts it, with `data: {ErrorEnvelope}`.",
        ChatCompletion,
    )
    answer["content"]["text/event-stream"] = {"schema": _event(ChatCompletionChunk)}
    return _generated("createChatCompletion", "Answer a conversation.", ChatFields, answer)


def _completions() -> Json:
    answer = _response(
        "The answer; with `stream` a series of events `data: {TextCompletion}` that ends with `data: [DONE]`, or with "
        "`data: {ErrorEnvelope}` where a failure cuts it.",
        TextCompletion,
    )
    answer["content"]["text/event-stream"] = {"schema": _event(TextCompletion)}
    return _generated("createCompletion", "Continue a raw prompt, or each of a list.", CompletionFields, answer)


def _embeddings() -> Json:
    answer = _response("The vectors, in the order of the inputs.", EmbeddingList)
    return _generated("createEmbedding", "Turn texts into vectors.", EmbeddingFields, answer)


def _generated(operation_id: str, summary: str, kind: type, answer: Json) -> Json:
    """Describe an endpoint on the path of chat completions."""
    answer["headers"] |= _headers(_HEADERS, required=True) | _headers(_SOME_HEADERS | _RATE_HEADERS)
    return {
        "operationId": operation_id,
        "summary": summary,
        "parameters": [_parameter(name, "header", text) for name, text in _REQUEST_HEADERS.items()],
        "requestBody": {"required": True, "content": {_JSON: {"schema": _ref(kind)}}},
        "responses": {"200": answer, **_errors(_CHAT_ERRORS)},
    }


def _messages() -> Json:
    """Describe Anthropic's Messages API; its rate-limit headers have the names of that API."""
    answer = _response(
        "The message; with `stream` the events of Anthropic's API from `message_start` to `message_stop`, or, where a "
        "failure cuts it, to `error`.",
        MessageAnswer,
    )
    answer["headers"] |= _headers(_HEADERS, required=True) | _headers(_SOME_HEADERS | _MESSAGE_LIMITS)
    answer["content"]["text/event-stream"] = {"schema": {"type": "object", "description": "One event's fields."}}
    return {
        "operationId": "createMessage",
        "summary": "Answer a conversation, in the form of Anthropic's Messages API.",
        "parameters": [_parameter(name, "header", text) for name, text in _MESSAGE_HEADERS.items()],
        "requestBody": {"required": True, "content": {_JSON: {"schema": _ref(MessageFields)}}},
        "responses": {"200": answer, **_message_errors(_CHAT_ERRORS)},
    }


def _count_tokens() -> Json:
    """Describe the count of a conversation's tokens."""
    summary = "The tokens of a conversation, counted by a deployment or else estimated."
    return {
        "operationId": "countMessageTokens",
        "summary": summary,
        "requestBody": {"required": True, "content": {_JSON: {"schema": _ref(CountTokensFields)}}},
        "responses": {
            "200": _response(summary, CountedTokens),
            **_message_errors(tuple(sorted({*_EDGE_ERRORS, 401, 403, 404}))),
        },
    }


def _message_errors(statuses: tuple[int, ...]) -> Json:
    """Describe errors in the envelope of Anthropic's API."""
    errors = _errors(statuses)
    for status in statuses:
        error = errors[str(status)]
        error["content"][_JSON]["schema"] = _ref(MessageErrorEnvelope)
        error["headers"] = {
            name: header for name, header in error["headers"].items() if not name.startswith("x-ratelimit-")
        }
    if 429 in statuses:
        errors["429"]["headers"] |= _headers(_MESSAGE_LIMITS)
    return errors


def _responses_paths() -> Json:
    """Describe the Responses API."""
    answer = _response(
        "The response; with `stream` a series of events `event: {type}`, `data: {…}` with a `sequence_number`, from "
        "`response.created` to `response.completed`, `response.incomplete`, or `error` and `response.failed`.",
        ResponseObject,
    )
    answer["headers"] |= _headers(_HEADERS, required=True) | _headers(_SOME_HEADERS | _RATE_HEADERS)
    answer["content"]["text/event-stream"] = {"schema": {"type": "object", "required": ["event", "data"]}}
    name = _parameter("response_id", "path", "Its id", required=True)
    page = [
        _parameter("limit", "query", "Items of a page", schema={"type": "integer", "minimum": 1, "maximum": 100}),
        _parameter("order", "query", "Order of the items", schema={"enum": ["asc", "desc"]}),
        _parameter("after", "query", "Id of the item before the page"),
    ]
    deletion = _get("deleteResponse", "Delete a stored response.", DeletedResponse, (401, 404))
    items = _get("listInputItems", "The items that a stored response answers.", ResponseItems, (401, 404))
    return {
        RESPONSES_PATH: {
            "post": {
                "operationId": "createResponse",
                "summary": "Answer a conversation, in the form of OpenAI's Responses.",
                "requestBody": {"required": True, "content": {_JSON: {"schema": _ref(ResponsesFields)}}},
                "responses": {"200": answer, **_errors(_CHAT_ERRORS)},
            }
        },
        RESPONSE_PATH: {
            "get": _get("getResponse", "A stored response.", ResponseObject, (401, 404)),
            "delete": deletion,
            "parameters": [name],
        },
        INPUT_ITEMS_PATH: {"get": {**items, "parameters": page}, "parameters": [name]},
    }


def _feedback() -> Json:
    done = "Noted; a cached response is not served again."
    return {
        "operationId": "giveFeedback",
        "summary": "Report a wrong answer.",
        "requestBody": {"required": True, "content": {_JSON: {"schema": _ref(Feedback)}}},
        "responses": {"200": _response(done, Noted), **_errors(tuple(sorted({*_EDGE_ERRORS, 401, 404})))},
    }


def _conversion(operation_id: str, summary: str, body: type, answer: type) -> Json:
    """Describe an endpoint that a deployment of the model's route answers."""
    return {
        "operationId": operation_id,
        "summary": summary,
        "requestBody": {"required": True, "content": {_JSON: {"schema": _ref(body)}}},
        "responses": {"200": _response(summary, answer), **_errors(_CHAT_ERRORS)},
    }


def _event(kind: type) -> Json:
    """Describe one event of a stream by its fields."""
    payload = {"anyOf": [_ref(kind), _ref(ErrorEnvelope)]}
    data = {"type": "string", "contentMediaType": _JSON, "contentSchema": payload}
    return {
        "type": "object",
        "description": "One event's fields; the last event's `data` is `[DONE]`.",
        "required": ["data"],
        "properties": {"data": {"anyOf": [{"const": "[DONE]"}, data]}},
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
    response["headers"] |= _headers(_ERROR_CODE)
    if status == 503:
        response["headers"] |= _headers(_SHED_HEADERS)
    if status == 429:
        response["headers"] |= _headers(_RETRY_HEADERS | _RATE_HEADERS)
    if status == 405:
        response["headers"] |= _headers({"allow": ("Methods that would have worked", _TEXT)}, required=True)
    if status == 401:
        challenge = {"type": "string", "pattern": "^Bearer"}
        response["headers"] |= _headers({"www-authenticate": ("The scheme to use", challenge)}, required=True)
    return response


def _response(description: str, kind: type) -> Json:
    return {
        "description": description,
        "headers": _headers(_REQUEST_ID, required=True),
        "content": {_JSON: {"schema": _ref(kind)}},
    }


def _headers(headers: dict[str, tuple[str, Json]], *, required: bool = False) -> Json:
    return {
        name: {"description": text, "required": required, "schema": schema} for name, (text, schema) in headers.items()
    }


def _parameter(name: str, place: str, text: str, *, schema: Json = _ANY_TEXT, required: bool = False) -> Json:
    return {"name": name, "in": place, "required": required, "description": text, "schema": schema}


def _ref(kind: type) -> Json:
    return {"$ref": _REF.format(name=kind.__name__)}

"""Operations of the public API in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from gateway.api.feedback import Feedback, Noted
from gateway.api.openapi.answers import ChatCompletion, ChatCompletionChunk, ProbeState, TextCompletion
from gateway.api.openapi.components import Schema, ref
from gateway.api.openapi.headers import (
    ANSWER_HEADERS,
    ANY_TEXT,
    CHAT_HEADERS,
    MESSAGE_HEADERS,
    MESSAGE_LIMITS,
    RATE_HEADERS,
    REQUEST_HEADERS,
    SOME_HEADERS,
    described_headers,
)
from gateway.api.openapi.responses import (
    EDGE_ERRORS,
    GENERATION_ERRORS,
    JSON_TYPE,
    described_errors,
    described_message_errors,
    described_response,
)
from gateway.api.openapi.responses_schema import ResponseObject, ResponsesFields
from gateway.api.recalls import MAX_RECALLS, RecallPage
from gateway.api.stored_responses import INPUT_ITEMS_PATH, RESPONSE_PATH, DeletedResponse, ResponseItems
from gateway.chat.schema import ChatFields
from gateway.dialects.completions.schema import CompletionFields
from gateway.dialects.embeddings.schema import EmbeddingFields, EmbeddingList
from gateway.dialects.messages.schema import (
    CountedTokens,
    CountTokensFields,
    MessageAnswer,
    MessageFields,
)
from gateway.dialects.responses.exchange import RESPONSES_PATH
from gateway.errors import ErrorEnvelope
from gateway.quotes.serving.quoter import RefusedQuote, ShownQuote
from routing_policies.estimation.coverage import LEAST_COVERAGE, MOST_COVERAGE

_QUOTE_ERRORS: Final = tuple(status for status in GENERATION_ERRORS if status not in (502, 504))
_RESPONSE_ID: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,128}$"}


def chat_operation() -> Schema:
    """Describe chat completions."""
    answer = described_response(
        "The answer; with `stream` a series of events `data: {ChatCompletionChunk}` that ends with `data: [DONE]`, "
        "or, where a failure cuts it, with `data: {ErrorEnvelope}`.",
        ChatCompletion,
    )
    answer["content"]["text/event-stream"] = {"schema": _event(ChatCompletionChunk)}
    operation = _generated("createChatCompletion", "Answer a conversation.", ChatFields, answer)
    operation["parameters"] = [parameter(name, "header", text) for name, text in CHAT_HEADERS.items()]
    return operation


def completions_operation() -> Schema:
    """Describe text completions."""
    answer = described_response(
        "The answer; with `stream` a series of events `data: {TextCompletion}` that ends with `data: [DONE]`, or with "
        "`data: {ErrorEnvelope}` where a failure cuts it.",
        TextCompletion,
    )
    answer["content"]["text/event-stream"] = {"schema": _event(TextCompletion)}
    return _generated("createCompletion", "Continue a raw prompt, or each of a list.", CompletionFields, answer)


def embeddings_operation() -> Schema:
    """Describe embeddings."""
    answer = described_response("The vectors, in the order of the inputs.", EmbeddingList)
    return _generated("createEmbedding", "Turn texts into vectors.", EmbeddingFields, answer)


def _generated(operation_id: str, summary: str, kind: type, answer: Schema) -> Schema:
    """Describe an endpoint on the path of chat completions."""
    answer["headers"] |= described_headers(ANSWER_HEADERS, required=True) | described_headers(
        SOME_HEADERS | RATE_HEADERS
    )
    return {
        "operationId": operation_id,
        "summary": summary,
        "parameters": [parameter(name, "header", text) for name, text in REQUEST_HEADERS.items()],
        "requestBody": {"required": True, "content": {JSON_TYPE: {"schema": ref(kind)}}},
        "responses": {"200": answer, **described_errors(GENERATION_ERRORS)},
    }


def messages_operation() -> Schema:
    """Describe Anthropic's Messages API; its rate-limit headers have the names of that API."""
    answer = described_response(
        "The message; with `stream` the events of Anthropic's API from `message_start` to `message_stop`, or, where a "
        "failure cuts it, to `error`.",
        MessageAnswer,
    )
    answer["headers"] |= described_headers(ANSWER_HEADERS, required=True) | described_headers(
        SOME_HEADERS | MESSAGE_LIMITS
    )
    answer["content"]["text/event-stream"] = {"schema": {"type": "object", "description": "One event's fields."}}
    return {
        "operationId": "createMessage",
        "summary": "Answer a conversation, in the form of Anthropic's Messages API.",
        "parameters": [parameter(name, "header", text) for name, text in MESSAGE_HEADERS.items()],
        "requestBody": {"required": True, "content": {JSON_TYPE: {"schema": ref(MessageFields)}}},
        "responses": {"200": answer, **described_message_errors(GENERATION_ERRORS)},
    }


def count_operation() -> Schema:
    """Describe the count of a conversation's tokens."""
    summary = "The tokens of a conversation, counted by a deployment or else estimated."
    return {
        "operationId": "countMessageTokens",
        "summary": summary,
        "requestBody": {"required": True, "content": {JSON_TYPE: {"schema": ref(CountTokensFields)}}},
        "responses": {
            "200": described_response(summary, CountedTokens),
            **described_message_errors(tuple(sorted({*EDGE_ERRORS, 401, 403, 404}))),
        },
    }


def responses_paths() -> Schema:
    """Describe the Responses API."""
    answer = described_response(
        "The response; with `stream` a series of events `event: {type}`, `data: {…}` with a `sequence_number`, from "
        "`response.created` to `response.completed`, `response.incomplete`, or `error` and `response.failed`.",
        ResponseObject,
    )
    answer["headers"] |= described_headers(ANSWER_HEADERS, required=True) | described_headers(
        SOME_HEADERS | RATE_HEADERS
    )
    answer["content"]["text/event-stream"] = {"schema": {"type": "object", "required": ["event", "data"]}}
    name = parameter("response_id", "path", "Its id", schema=_RESPONSE_ID, required=True)
    page = [
        parameter("limit", "query", "Items of a page", schema={"type": "integer", "minimum": 1, "maximum": 100}),
        parameter("order", "query", "Order of the items", schema={"enum": ["asc", "desc"]}),
        parameter("after", "query", "Id of the item before the page"),
    ]
    deletion = get_operation("deleteResponse", "Delete a stored response.", DeletedResponse, (401, 404))
    items = get_operation("listInputItems", "The items that a stored response answers.", ResponseItems, (401, 404))
    return {
        RESPONSES_PATH: {
            "post": {
                "operationId": "createResponse",
                "summary": "Answer a conversation, in the form of OpenAI's Responses.",
                "requestBody": {"required": True, "content": {JSON_TYPE: {"schema": ref(ResponsesFields)}}},
                "responses": {"200": answer, **described_errors(GENERATION_ERRORS)},
            }
        },
        RESPONSE_PATH: {
            "get": get_operation("getResponse", "A stored response.", ResponseObject, (401, 404)),
            "delete": deletion,
            "parameters": [name],
        },
        INPUT_ITEMS_PATH: {"get": {**items, "parameters": page}, "parameters": [name]},
    }


def feedback_operation() -> Schema:
    """Describe reports of wrong answers."""
    done = "Noted; a cached response is not served again."
    return {
        "operationId": "giveFeedback",
        "summary": "Report a wrong answer.",
        "requestBody": {"required": True, "content": {JSON_TYPE: {"schema": ref(Feedback)}}},
        "responses": {
            "200": described_response(done, Noted),
            **described_errors(tuple(sorted({*EDGE_ERRORS, 401, 404}))),
        },
    }


def recalls_operation() -> Schema:
    """Describe recall notices."""
    page = [
        parameter("after", "query", "Cursor of an earlier page", schema={"type": "string", "pattern": "^[0-9]{1,16}$"}),
        parameter(
            "limit", "query", "Notices of a page", schema={"type": "integer", "minimum": 1, "maximum": MAX_RECALLS}
        ),
    ]
    summary = "Notices about similar answers that proved wrong, oldest first."
    return {**get_operation("listRecalls", summary, RecallPage, (401, 404)), "parameters": page}


def quote_operation() -> Schema:
    """Describe quotes."""
    answer = described_response("What the request would get now.", ShownQuote)
    answer["content"][JSON_TYPE]["schema"] = {"anyOf": [ref(ShownQuote), ref(RefusedQuote)]}
    limits: Schema = {"type": "number", "minimum": LEAST_COVERAGE, "maximum": MOST_COVERAGE}
    coverage = parameter("coverage", "query", "Share of first tokens within the bound", schema=limits)
    return {
        "operationId": "createQuote",
        "summary": "What a chat request would get now, and a token that reserves it for a few seconds.",
        "parameters": [coverage, *(parameter(name, "header", text) for name, text in REQUEST_HEADERS.items())],
        "requestBody": {"required": True, "content": {JSON_TYPE: {"schema": ref(ChatFields)}}},
        "responses": {"200": answer, **described_errors(_QUOTE_ERRORS)},
    }


def conversion_operation(operation_id: str, summary: str, body: type, answer: type) -> Schema:
    """Describe an endpoint that a deployment of the model's route answers."""
    return {
        "operationId": operation_id,
        "summary": summary,
        "requestBody": {"required": True, "content": {JSON_TYPE: {"schema": ref(body)}}},
        "responses": {"200": described_response(summary, answer), **described_errors(GENERATION_ERRORS)},
    }


def _event(kind: type) -> Schema:
    """Describe one event of a stream by its fields."""
    payload = {"anyOf": [ref(kind), ref(ErrorEnvelope)]}
    data = {"type": "string", "contentMediaType": JSON_TYPE, "contentSchema": payload}
    return {
        "type": "object",
        "description": "One event's fields; the last event's `data` is `[DONE]`.",
        "required": ["data"],
        "properties": {"data": {"anyOf": [{"const": "[DONE]"}, data]}},
    }


def get_operation(operation_id: str, summary: str, kind: type, errors: tuple[int, ...]) -> Schema:
    """Describe an endpoint that is read; `errors` are its statuses besides those of every endpoint."""
    statuses = tuple(sorted({*EDGE_ERRORS, *errors}))
    return {
        "operationId": operation_id,
        "summary": summary,
        "responses": {"200": described_response(summary, kind), **described_errors(statuses)},
    }


def probe_operation(operation_id: str, summary: str) -> Schema:
    """Describe a probe, which needs no key."""
    return {**get_operation(operation_id, summary, ProbeState, (503,)), "security": []}


def parameter(name: str, place: str, text: str, *, schema: Schema = ANY_TEXT, required: bool = False) -> Schema:
    """Describe a parameter in a place: path, query or header."""
    return {"name": name, "in": place, "required": required, "description": text, "schema": schema}


def _answer_headers(limits: dict[str, tuple[str, Schema]]) -> Schema:
    """Return the headers of a generated answer, those of a tenant's limits among them."""
    return described_headers(ANSWER_HEADERS, required=True) | described_headers(SOME_HEADERS | limits)

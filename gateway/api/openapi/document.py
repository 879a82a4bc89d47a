"""The public API as an OpenAPI 3.1 document; its schemas come from the structs that parse requests."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.api.feedback import FEEDBACK_PATH, Feedback, Noted
from gateway.api.message_tokens import COUNT_TOKENS_PATH
from gateway.api.models import MODELS_PATH, ListedModel, ModelList
from gateway.api.openapi.answers import (
    ChatCompletion,
    ChatCompletionChunk,
    InstalledVersion,
    ProbeState,
    TextCompletion,
)
from gateway.api.openapi.components import REF, Schema
from gateway.api.openapi.message_rules import MESSAGE_BLOCKS, add_message_rules
from gateway.api.openapi.operations import (
    chat_operation,
    completions_operation,
    conversion_operation,
    count_operation,
    embeddings_operation,
    feedback_operation,
    get_operation,
    messages_operation,
    parameter,
    probe_operation,
    quote_operation,
    recalls_operation,
    responses_paths,
)
from gateway.api.openapi.prompts import state_prompts
from gateway.api.openapi.response_rules import add_response_rules
from gateway.api.openapi.responses_schema import ResponseObject, ResponsesFields
from gateway.api.openapi.rules import add_relations, allow_absent, describe_fields
from gateway.api.recalls import RECALLS_PATH, RecallPage
from gateway.api.routes import CHAT_PATH
from gateway.api.stored_responses import DeletedResponse, ResponseItems
from gateway.api.tokenization import (
    DETOKENIZE_PATH,
    TOKENIZE_PATH,
    DetokenizeBody,
    DetokenizedText,
    TokenizeBody,
    TokenList,
)
from gateway.chat.schema import ChatFields
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
from gateway.errors import ErrorEnvelope
from gateway.quotes.serving.quote_endpoint import QUOTE_PATH
from gateway.quotes.serving.quoter import RefusedQuote, ShownQuote
from routing_policies.policy.values import ModelName

_MODEL_NAME: Final[Schema] = msgspec.json.schema(ModelName)


def openapi_document() -> Schema:
    """Return the document, as values that encode to JSON; `security` is that of a policy with keys."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": "1",
            "description": "OpenAI-compatible endpoints. Every error has the same envelope. "
            "A request header with a malformed value counts as absent.",
        },
        "security": [{"key": []}],
        "paths": _paths(),
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas() -> Schema:
    """Return the schema of every body, by its name."""
    structs = (
        *(ChatFields, ChatCompletion, ChatCompletionChunk, ModelList, ListedModel, ProbeState, ErrorEnvelope),
        *(CompletionFields, TextCompletion, EmbeddingFields, EmbeddingList),
        *(Feedback, Noted, TokenizeBody, TokenList, DetokenizeBody, DetokenizedText, InstalledVersion),
        *MESSAGE_BLOCKS,
        *(MessageFields, CountTokensFields, MessageAnswer, CountedTokens, MessageErrorEnvelope),
        *(ResponsesFields, ResponseObject, DeletedResponse, ResponseItems, RecallPage, ShownQuote, RefusedQuote),
    )
    _, schemas = msgspec.json.schema_components(structs, ref_template=REF)
    state_prompts(schemas)
    allow_absent(schemas)
    add_relations(schemas)
    add_message_rules(schemas)
    add_response_rules(schemas)
    describe_fields(schemas)
    return schemas


def _paths() -> Schema:
    """Return the operations of every path."""
    return {
        CHAT_PATH: {"post": chat_operation()},
        **responses_paths(),
        COMPLETIONS_PATH: {"post": completions_operation()},
        EMBEDDINGS_PATH: {"post": embeddings_operation()},
        MODELS_PATH: {"get": get_operation("listModels", "The models this key may call.", ModelList, (401,))},
        MODELS_PATH + "/{model}": {
            "get": get_operation("getModel", "One model.", ListedModel, (401, 404)),
            "parameters": [parameter("model", "path", "Its name", schema=_MODEL_NAME, required=True)],
        },
        QUOTE_PATH: {"post": quote_operation()},
        RECALLS_PATH: {"get": recalls_operation()},
        FEEDBACK_PATH: {"post": feedback_operation()},
        TOKENIZE_PATH: {"post": conversion_operation("tokenize", "The tokens of a prompt.", TokenizeBody, TokenList)},
        DETOKENIZE_PATH: {
            "post": conversion_operation("detokenize", "The text of tokens.", DetokenizeBody, DetokenizedText)
        },
        MESSAGES_PATH: {"post": messages_operation()},
        COUNT_TOKENS_PATH: {"post": count_operation()},
        "/livez": {"get": probe_operation("livez", "The process answers.")},
        "/readyz": {"get": probe_operation("readyz", "Requests can be served.")},
        "/startupz": {"get": probe_operation("startupz", "The start has finished.")},
        "/health": {"get": probe_operation("health", "Requests can be served, as of `/readyz`.")},
        "/version": {
            "get": {
                **get_operation("version", "The version of this gateway.", InstalledVersion, ()),
                "security": [],
            }
        },
    }

"""Embeddings: requests for vectors of texts, routed, cached exactly and shed like chat completions."""

from __future__ import annotations

from typing import Final

from gateway.chat.operation import EMBEDDINGS
from gateway.chat.request import ChatRequest
from gateway.chat.schema import ChatFields
from gateway.dialects.direct import DirectDialect
from gateway.dialects.embeddings.schema import EMBEDDING_RULES, MAX_INPUTS, EmbeddingFields
from gateway.dialects.operation_parser import OperationParser, ParsedBody, PromptList, prompts_of
from gateway.errors import InvalidRequest

EMBEDDINGS_PATH: Final = "/v1/embeddings"


def embeddings_dialect() -> DirectDialect:
    """Return the API of embeddings."""
    return DirectDialect(EMBEDDINGS_PATH, embeddings_parser().parse)


def embeddings_parser() -> OperationParser[EmbeddingFields]:
    """Return a parser of requests."""
    return OperationParser(EmbeddingFields, request_of, EMBEDDING_RULES)


def inputs_of(fields: EmbeddingFields) -> PromptList:
    """Return the inputs; raises InvalidRequest for none, for an empty one, or for too many."""
    inputs = prompts_of(fields.input, "input")
    if len(inputs.texts) > MAX_INPUTS:
        raise InvalidRequest(f"`input` must have at most {MAX_INPUTS} inputs; got {len(inputs.texts)}.", param="input")
    if inputs.num_text_bytes is None and "" in inputs.texts:
        place = inputs.texts.index("")
        path = "input" if isinstance(fields.input, str) else f"input[{place}]"
        raise InvalidRequest(f"`{path}` must have at least one character; got an empty text.", param=path)
    return inputs


def request_of(body: ParsedBody[EmbeddingFields]) -> ChatRequest:
    """Return the request."""
    inputs = inputs_of(body.fields)
    read = ChatFields(model=body.fields.model, messages=list(inputs.messages), user=body.fields.user)
    return ChatRequest(
        body.raw, body.document, read, num_text_bytes=inputs.num_text_bytes, spans=body.spans, operation=EMBEDDINGS
    )

"""Schemas of prompts: texts, token ids, or lists of either, all of one kind."""

from __future__ import annotations

from typing import Any, Final

from gateway.api.openapi.components import Schema
from gateway.dialects.completions.schema import MAX_PROMPTS, CompletionFields
from gateway.dialects.embeddings.schema import MAX_INPUTS, EmbeddingFields
from gateway.dialects.operation_parser import MAX_PROMPT_TOKENS

_TOKENS: Final[Schema] = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    "minItems": 1,
    "maxItems": MAX_PROMPT_TOKENS,
}


def state_prompts(schemas: Schema) -> None:
    """Replace the struct's union of all kinds by one alternative for each kind."""
    completion, embedding = (schemas[kind.__name__]["properties"] for kind in (CompletionFields, EmbeddingFields))
    completion["prompt"] = _prompt({"type": "string"}, MAX_PROMPTS)
    embedding["input"] = _prompt({"type": "string", "minLength": 1}, MAX_INPUTS)


def _prompt(text: Schema, most: int) -> dict[str, Any]:
    def listed(item: Schema) -> Schema:
        return {"type": "array", "items": item, "minItems": 1, "maxItems": most}

    return {"anyOf": [text, listed(text), _TOKENS, listed(_TOKENS)]}

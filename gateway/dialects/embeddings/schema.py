"""Typed fields of an embeddings request, and the answer of the gateway's own encoder.

Names and ranges follow OpenAI's embeddings. Unknown fields are not listed here and go upstream unchanged.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from gateway.chat.fields.table import FieldRule, limits
from gateway.dialects.completions.schema import PromptToken, PromptTokens
from gateway.dialects.operation_parser import MAX_PROMPT_TOKENS

MAX_INPUTS: Final = 2048
"""Inputs of one request, as at OpenAI."""
MAX_DIMENSIONS: Final = 65_536
_INPUT: Final = "be a string, a list of token ids, or a list of either"

EMBEDDING_RULES: Final = {
    "input": FieldRule(type="any", gateway="reads", engine="refuses", must=_INPUT),
    "input[]": FieldRule(type="any", gateway="reads", engine="refuses", must="be a string or token ids"),
    "input[][]": FieldRule(type="integer", gateway="reads", engine="refuses", must="be a token id"),
    "dimensions": FieldRule(type="integer", gateway="checks", engine="refuses", least=1, most=MAX_DIMENSIONS),
    "encoding_format": FieldRule(type="string", gateway="checks", engine="refuses"),
}
"""Rules of the fields that chat completions do not have."""


class EmbeddingFields(Struct, frozen=True, kw_only=True):
    """An embeddings request; the input is a text, a list of token ids, or a list of either."""

    model: Annotated[str, limits("model")]
    input: str | Annotated[list[str | PromptToken | PromptTokens], Meta(min_length=1, max_length=MAX_PROMPT_TOKENS)]
    dimensions: Annotated[int, Meta(ge=1, le=MAX_DIMENSIONS)] | None = None
    encoding_format: Annotated[str, limits("user")] | None = None
    user: Annotated[str, limits("user")] | None = None


class Embedding(Struct, frozen=True):
    """The vector of one input: numbers, or with `encoding_format: base64` their little-endian 32-bit floats."""

    index: int
    embedding: list[float] | str
    object: str = "embedding"


class EmbeddingUsage(Struct, frozen=True):
    """Tokens of all inputs, with the marks that the model puts around each."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Struct, frozen=True):
    """Embeddings in the order of the inputs."""

    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
    object: str = "list"

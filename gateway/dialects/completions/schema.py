"""Typed fields of a text completion request; the published schema is generated from them.

Names and ranges follow OpenAI's completions. Unknown fields are not listed here and go upstream unchanged.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from gateway.chat.schema import (
    MAX_CHOICES,
    MAX_LOGIT_BIAS,
    MAX_OUTPUT_TOKENS,
    MAX_STOP_STRINGS,
    Bias,
    ChatStreamOptions,
    Label,
    Penalty,
    Ratio,
    StopString,
    TokenId,
)
from gateway.dialects.operation_parser import MAX_PROMPT_TOKENS

MAX_PROMPTS: Final = 1024
MAX_LOGPROBS: Final = 100

PromptToken = Annotated[int, Meta(ge=0, le=2**31 - 1)]
PromptTokens = Annotated[list[PromptToken], Meta(max_length=MAX_PROMPT_TOKENS)]


class CompletionFields(Struct, frozen=True, kw_only=True):
    """A text completion request; the prompt is a text, a list of token ids, or a list of either."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    prompt: str | Annotated[list[str | PromptToken | PromptTokens], Meta(min_length=1, max_length=MAX_PROMPT_TOKENS)]
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=MAX_OUTPUT_TOKENS)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Ratio | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[TokenId, Bias], Meta(max_length=MAX_LOGIT_BIAS)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    user: Label | None = None
    prompt_cache_key: Label | None = None
    service_tier: Label | None = None

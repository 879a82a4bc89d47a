"""Typed fields of a text completion request; the published schema is generated from them.

Names and ranges follow OpenAI's completions. Unknown fields are not listed here and go upstream unchanged.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from gateway.chat.fields.table import FIELD_RULES, FieldRule, limits
from gateway.chat.schema import Bias, ChatStreamOptions, StopString, TokenId
from gateway.dialects.operation_parser import MAX_PROMPT_TOKENS

MAX_PROMPTS: Final = 1024
MAX_LOGPROBS: Final = 100
_PROMPT: Final = "be a string, a list of token ids, or a list of either"

COMPLETION_RULES: Final = {
    "prompt": FieldRule(type="any", gateway="reads", engine="serves", must=_PROMPT),
    "prompt[]": FieldRule(type="any", gateway="reads", engine="serves", must="be a string or token ids"),
    "prompt[][]": FieldRule(type="integer", gateway="reads", engine="serves", must="be a token id"),
    "best_of": FIELD_RULES["n"],
    "logprobs": FieldRule(type="integer", gateway="checks", engine="serves", least=0, most=MAX_LOGPROBS),
    "echo": FieldRule(type="boolean", gateway="checks", engine="refuses"),
    "suffix": FieldRule(type="string", gateway="checks", engine="refuses"),
}
"""Rules of the fields that chat completions do not have, or have otherwise."""

PromptToken = Annotated[int, Meta(ge=0, le=2**31 - 1)]
PromptTokens = Annotated[list[PromptToken], Meta(max_length=MAX_PROMPT_TOKENS)]


class CompletionFields(Struct, frozen=True, kw_only=True):
    """A text completion request; the prompt is a text, a list of token ids, or a list of either."""

    model: Annotated[str, limits("model")]
    prompt: str | Annotated[list[str | PromptToken | PromptTokens], Meta(min_length=1, max_length=MAX_PROMPT_TOKENS)]
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    max_tokens: Annotated[int, limits("max_tokens")] | None = None
    temperature: Annotated[float, limits("temperature")] | None = None
    top_p: Annotated[float, limits("top_p")] | None = None
    n: Annotated[int, limits("n")] | None = None
    best_of: Annotated[int, limits("n")] | None = None
    stop: StopString | Annotated[list[StopString], limits("stop")] | None = None
    seed: Annotated[int, limits("seed")] | None = None
    presence_penalty: Annotated[float, limits("presence_penalty")] | None = None
    frequency_penalty: Annotated[float, limits("frequency_penalty")] | None = None
    logit_bias: Annotated[dict[TokenId, Bias], limits("logit_bias")] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    user: Annotated[str, limits("user")] | None = None
    prompt_cache_key: Annotated[str, limits("prompt_cache_key")] | None = None
    service_tier: Annotated[str, limits("service_tier")] | None = None

"""Structs of the answers in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.chat.schema import ChatToolCall

FinishReason = Annotated[
    str,
    Meta(
        description="`stop`, `length`, `tool_calls` or `content_filter`; some servers have further words.",
        examples=["stop"],
    ),
]


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

"""Typed fields of Anthropic's Messages API; the published schema is generated from them.

Names follow Anthropic's reference. Members and kinds of content that are not listed here are passed on as they are.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field

MAX_BLOCKS: Final = 4096
MAX_MESSAGE_TOOLS: Final = 4096
MAX_TURNS: Final = 4096


class TextBlock(Struct, frozen=True, tag_field="type", tag="text"):
    """Text content."""

    text: str


class Base64Source(Struct, frozen=True, tag_field="type", tag="base64"):
    """Media inside the request."""

    media_type: str
    data: str


class UrlSource(Struct, frozen=True, tag_field="type", tag="url"):
    """Media at an address, which the gateway never fetches."""

    url: str


class ImageBlock(Struct, frozen=True, tag_field="type", tag="image"):
    """Image content."""

    source: Base64Source | UrlSource


class ToolUseBlock(Struct, frozen=True, tag_field="type", tag="tool_use"):
    """A tool call by the model."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]
    name: Annotated[str, Meta(min_length=1)]
    input: dict[str, Any]


class ToolResultBlock(Struct, frozen=True, tag_field="type", tag="tool_result"):
    """The output of a tool call."""

    tool_use_id: Annotated[str, Meta(min_length=1, max_length=256)]
    content: str | Annotated[list[dict[str, Any]], Meta(max_length=MAX_BLOCKS)] | None = None
    is_error: bool | None = None


class ReasoningBlock(Struct, frozen=True, tag_field="type", tag="thinking"):
    """The model's reasoning, with the signature that its maker checks."""

    thinking: str
    signature: str = ""


Blocks = Annotated[list[dict[str, Any]], Meta(max_length=MAX_BLOCKS)]


class MessageTurn(Struct, frozen=True):
    """One message of the conversation; its content is text or a list of blocks."""

    role: Literal["user", "assistant", "system"]
    content: str | Blocks


class MessageTool(Struct, frozen=True):
    """A tool that the model may use; one with a type of its own and no `input_schema` is Anthropic's."""

    name: str | None = None
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class MessageToolChoice(Struct, frozen=True):
    """Rule for the use of tools."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ReasoningSetting(Struct, frozen=True):
    """Wish for reasoning before the answer."""

    type: str
    budget_tokens: int | None = None
    display: str | None = None


class MessageMetadata(Struct, frozen=True):
    """Facts about the request."""

    user_id: Annotated[str, Meta(max_length=512)] | None = None


class OutputFormat(Struct, frozen=True):
    """JSON Schema that the answer follows."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputSetting(Struct, frozen=True):
    """Form and effort of the answer."""

    effort: str | None = None
    format: OutputFormat | None = None


class CountTokensFields(Struct, frozen=True, kw_only=True):
    """A conversation whose tokens are to be counted."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[MessageTurn], Meta(min_length=1, max_length=MAX_TURNS)]
    system: str | Blocks | None = None
    tools: Annotated[list[MessageTool], Meta(max_length=MAX_MESSAGE_TOOLS)] | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: ReasoningSetting | None = None
    output_config: OutputSetting | None = None


class MessageFields(CountTokensFields, frozen=True, kw_only=True):
    """A request for a message."""

    max_tokens: Annotated[int, Meta(ge=0)]
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=1_000_000)] | None = None
    stop_sequences: list[str] | None = None
    metadata: MessageMetadata | None = None
    service_tier: str | None = None


class CountedTokens(Struct, frozen=True):
    """The number of tokens of a conversation."""

    input_tokens: int


class MessageUsage(Struct, frozen=True):
    """Tokens, as the deployment counted them; those read from a prefix cache stand apart."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded"
]


class MessageAnswer(Struct, frozen=True):
    """A whole answer."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[TextBlock | ToolUseBlock | ReasoningBlock]
    usage: MessageUsage
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None


class MessageErrorDetail(Struct, frozen=True):
    """The inside of the envelope."""

    message: str
    kind: str = field(name="type")


class MessageErrorEnvelope(Struct, frozen=True, tag_field="type", tag="error"):
    """The body of every error on the paths of this API."""

    error: MessageErrorDetail
    request_id: str | None = None

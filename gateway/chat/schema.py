"""Typed fields of a chat completion request: those that the gateway reads or whose range it checks.

The bounds come from the field table (`gateway.chat.fields`). Fields that are not here go upstream unchanged, and so do
parts of a kind that is not here. A field may be null where OpenAI allows it.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Struct

from gateway.chat.fields.table import FIELD_RULES, key_limits, limits

MAX_MESSAGES: Final = FIELD_RULES["messages"].most or 0
MAX_PARTS: Final = FIELD_RULES["messages[].content"].most or 0

CONTENT_BLOCKS: Final = "content_blocks"
"""Member of a message with content that only Anthropic's API can express."""
OUTPUT_ITEMS: Final = "output_items"
"""Member of an assistant message with items in the form of Responses: an extension of this gateway."""
OTHER_PART: Final = "other"
"""Type under which a part that the gateway does not read is converted."""


class ChatTextPart(Struct, frozen=True, tag_field="type", tag="text"):
    """Text content."""

    text: str


class RefusalPart(Struct, frozen=True, tag_field="type", tag="refusal"):
    """A refusal that the model gave earlier."""

    refusal: str


class ImageUrl(Struct, frozen=True):
    """An image as a `data:` URL, or an `https:` address, which the gateway never fetches."""

    url: Annotated[str, limits("messages[].content[].image_url.url")]


class ImagePart(Struct, frozen=True, tag_field="type", tag="image_url"):
    """Image content."""

    image_url: ImageUrl


class AudioPart(Struct, frozen=True, tag_field="type", tag="input_audio"):
    """Audio content inside the request."""

    input_audio: dict[str, Any]


class OtherPart(Struct, frozen=True, tag_field="type", tag=OTHER_PART):
    """Content of a kind that the gateway passes on unread, such as a file or a video."""


KNOWN_PARTS: Final = frozenset({"text", "refusal", "image_url", "input_audio", OTHER_PART})

ContentParts = Annotated[
    list[ChatTextPart | ImagePart | AudioPart | RefusalPart | OtherPart], limits("messages[].content")
]


class ChatFunctionCall(Struct, frozen=True):
    """A function call by the model; `arguments` is JSON as text."""

    name: str
    arguments: str


class ChatToolCall(Struct, frozen=True):
    """One tool call by the model; of another type than `function`, its content is not read."""

    id: str | None = None
    function: ChatFunctionCall | None = None
    type: str = "function"


class SystemMessage(Struct, frozen=True, tag_field="role", tag="system"):
    """Instructions from the application."""

    content: str | ContentParts
    name: str | None = None


class DeveloperMessage(Struct, frozen=True, tag_field="role", tag="developer"):
    """Instructions from the application, in OpenAI's newer spelling."""

    content: str | ContentParts
    name: str | None = None


class UserMessage(Struct, frozen=True, tag_field="role", tag="user"):
    """A message from the user."""

    content: str | ContentParts
    name: str | None = None


class AssistantMessage(Struct, frozen=True, tag_field="role", tag="assistant"):
    """A message from the model; content may be null only beside tool calls or a refusal."""

    content: str | ContentParts | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[ChatToolCall], limits("messages[].tool_calls")] | None = None
    function_call: ChatFunctionCall | None = None


class ToolMessage(Struct, frozen=True, tag_field="role", tag="tool"):
    """The output of a tool call."""

    content: str | ContentParts
    tool_call_id: Annotated[str, limits("messages[].tool_call_id")]


class FunctionMessage(Struct, frozen=True, tag_field="role", tag="function"):
    """The output of a function call, in OpenAI's older spelling."""

    content: str | None
    name: str


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage


class ChatStreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Additional members of a streamed response."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class ChatFunction(Struct, frozen=True):
    """A function that the model may call; `parameters` is a JSON Schema."""

    name: Annotated[str, limits("tools[].function.name")]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ChatTool(Struct, frozen=True):
    """A tool that the model may use; `function` belongs to type `function`, and other types are not read."""

    type: str | None = None
    function: ChatFunction | None = None


StopString = Annotated[str, limits("stop[]")]
TokenId = Annotated[str, key_limits("logit_bias")]
Bias = Annotated[float, limits("logit_bias{}")]


class ChatFields(Struct, frozen=True, kw_only=True):
    """A chat completion request."""

    model: Annotated[str, limits("model")]
    messages: Annotated[list[Message], limits("messages")]
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    max_tokens: Annotated[int, limits("max_tokens")] | None = None
    max_completion_tokens: Annotated[int, limits("max_completion_tokens")] | None = None
    temperature: Annotated[float, limits("temperature")] | None = None
    top_p: Annotated[float, limits("top_p")] | None = None
    top_k: Annotated[int, limits("top_k")] | None = None
    min_p: Annotated[float, limits("min_p")] | None = None
    n: Annotated[int, limits("n")] | None = None
    best_of: Annotated[int, limits("best_of")] | None = None
    stop: StopString | Annotated[list[StopString], limits("stop")] | None = None
    seed: Annotated[int, limits("seed")] | None = None
    presence_penalty: Annotated[float, limits("presence_penalty")] | None = None
    frequency_penalty: Annotated[float, limits("frequency_penalty")] | None = None
    repetition_penalty: Annotated[float, limits("repetition_penalty")] | None = None
    logit_bias: Annotated[dict[TokenId, Bias], limits("logit_bias")] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, limits("top_logprobs")] | None = None
    response_format: dict[str, Any] | None = None
    tools: Annotated[list[ChatTool], limits("tools")] | None = None
    tool_choice: Annotated[str, limits("tool_choice")] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    user: Annotated[str, limits("user")] | None = None
    metadata: dict[str, Any] | None = None
    prompt_cache_key: Annotated[str, limits("prompt_cache_key")] | None = None
    service_tier: Annotated[str, limits("service_tier")] | None = None

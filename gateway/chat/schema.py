"""Typed fields of a chat completion request; the published schema is generated from them.

Field names and ranges follow OpenAI's chat completions; `top_k`, `min_p` and `repetition_penalty` follow vLLM. A field
may be null where OpenAI allows it. Unknown fields are not listed here and go upstream unchanged.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

MAX_MESSAGES = 4096
MAX_CHOICES = 128
MAX_OUTPUT_TOKENS = 1_000_000
MAX_STOP_STRINGS = 16
MAX_LOGIT_BIAS = 1024
MAX_TOOLS = 128
MAX_PARTS = 4096

# In Python `$` also matches before a final line feed; the look-ahead gives it JSON Schema's meaning.
_NAME: Final = r"^[A-Za-z0-9_-]+(?!\n)$"
_TOKEN_ID: Final = r"^[0-9]{1,9}(?!\n)$"
_IMAGE: Final = r"^data:image/"
IN_WORDS: Final = {
    repr(_NAME): "letters, digits, _ and - only",
    repr(_TOKEN_ID): "a token id, 1 to 9 digits",
    repr(_IMAGE): "the image itself as data:image/png;base64,…; addresses are not fetched",
}
"""Description of each pattern in words, keyed by the pattern as error messages quote it."""

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=_NAME)]
TokenCount = Annotated[int, Meta(ge=1, le=MAX_OUTPUT_TOKENS)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
StopString = Annotated[str, Meta(min_length=1, max_length=1024)]
TokenId = Annotated[str, Meta(pattern=_TOKEN_ID)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
Label = Annotated[str, Meta(max_length=512)]


class ChatTextPart(Struct, frozen=True, tag_field="type", tag="text"):
    """Text content."""

    text: str


class PlainTextPart(Struct, frozen=True):
    """Text content in a place where no other kind is allowed, so a tag would be optional."""

    type: Literal["text"]
    text: str


class RefusalPart(Struct, frozen=True, tag_field="type", tag="refusal"):
    """A refusal that the model gave earlier."""

    refusal: str


class ImageUrl(Struct, frozen=True):
    """The image itself, always inside the request as a `data:` URL."""

    url: Annotated[str, Meta(pattern=_IMAGE)]
    detail: Literal["auto", "low", "high"] | None = None


class ImagePart(Struct, frozen=True, tag_field="type", tag="image_url"):
    """Image content."""

    image_url: ImageUrl


class AudioPart(Struct, frozen=True, tag_field="type", tag="input_audio"):
    """Audio content inside the request."""

    input_audio: dict[str, Any]


UserContent = Annotated[list[ChatTextPart | ImagePart | AudioPart], Meta(min_length=1, max_length=MAX_PARTS)]
AssistantContent = Annotated[list[ChatTextPart | RefusalPart], Meta(min_length=1, max_length=MAX_PARTS)]
TextContent = Annotated[list[PlainTextPart], Meta(min_length=1, max_length=MAX_PARTS)]


class ChatFunctionCall(Struct, frozen=True):
    """A function call by the model; `arguments` is JSON as text."""

    name: Name
    arguments: str


class ChatToolCall(Struct, frozen=True):
    """One tool call by the model."""

    id: str
    function: ChatFunctionCall
    type: Literal["function"] = "function"


class SystemMessage(Struct, frozen=True, tag_field="role", tag="system"):
    """Instructions from the application."""

    content: str | TextContent
    name: str | None = None


class DeveloperMessage(Struct, frozen=True, tag_field="role", tag="developer"):
    """Instructions from the application, in OpenAI's newer spelling."""

    content: str | TextContent
    name: str | None = None


class UserMessage(Struct, frozen=True, tag_field="role", tag="user"):
    """A message from the user."""

    content: str | UserContent
    name: str | None = None


class AssistantMessage(Struct, frozen=True, tag_field="role", tag="assistant"):
    """A message from the model; content may be null only beside tool calls or a refusal."""

    content: str | AssistantContent | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[ChatToolCall], Meta(max_length=MAX_TOOLS)] | None = None
    function_call: ChatFunctionCall | None = None


class ToolMessage(Struct, frozen=True, tag_field="role", tag="tool"):
    """The output of a tool call."""

    content: str | TextContent
    tool_call_id: Annotated[str, Meta(min_length=1, max_length=256)]


class FunctionMessage(Struct, frozen=True, tag_field="role", tag="function"):
    """The output of a function call, in OpenAI's older spelling."""

    content: str | None
    name: Name


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage


class ChatStreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Additional members of a streamed response."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class ChatResponseFormat(Struct, frozen=True):
    """Required format of the response; the upstream validates the schema itself."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None


class ChatFunction(Struct, frozen=True):
    """A function that the model may call; `parameters` is a JSON Schema."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ChatTool(Struct, frozen=True):
    """A tool that the model may use."""

    type: Literal["function"]
    function: ChatFunction


class ChatFields(Struct, frozen=True, kw_only=True):
    """A chat completion request."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Ratio | None = None
    top_k: Annotated[int, Meta(ge=-1, le=1_000_000)] | None = None
    min_p: Ratio | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=1)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    logit_bias: Annotated[dict[TokenId, Bias], Meta(max_length=MAX_LOGIT_BIAS)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    response_format: ChatResponseFormat | None = None
    tools: Annotated[list[ChatTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Annotated[str, Meta(max_length=64)] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    user: Label | None = None
    metadata: Annotated[dict[Label, Label], Meta(max_length=16)] | None = None
    prompt_cache_key: Label | None = None
    service_tier: Label | None = None


PRIVILEGED_FIELDS = frozenset({"api_base", "base_url", "custom_host", "chat_template", "chat_template_kwargs"})
"""Fields by which a client could choose the upstream or the prompt template; always rejected."""

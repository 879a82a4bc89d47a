"""Requests of the completions endpoints, parsed once into frozen structs.

The field table (`engine.frontend.fields`) states types, bounds and what this engine does with each field. What it does
not know or need it ignores, at every depth; what would change the answer and cannot be served is a 400 that names the
field. Null and empty members count as absent.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from engine.config import FrontConfig
from engine.frontend.fields.faults import field_refusal, lonely_field, missing_field, unserved_field
from engine.frontend.fields.table import KNOWN_FIELDS, KnownField, bounds, key_bounds
from engine.frontend.request.absent import without_absent
from engine.frontend.request.errors import invalid_value, unsupported, wrong_request
from engine.frontend.request.history import modern_history
from engine.frontend.request.response_format import ResponseFormat, check_response_format
from engine.frontend.request.strict_json import parse_object
from engine.frontend.request.template_options import check_options, requested_effort
from engine.frontend.request.tools import Tool, ToolCall, ToolUse, check_tools, choose_tools
from engine.frontend.request.unserved import adapter_of, refuse_privileged, refuse_unserved

MAX_SERVED_TOP_LOGPROBS: Final = KNOWN_FIELDS["top_logprobs"].most or 0
MAX_PROMPTS: Final = 64
"""Prompts of one completion request."""

StopString = Annotated[str, bounds("stop[]")]
TokenId = Annotated[str, key_bounds("logit_bias")]
Bias = Annotated[float, bounds("logit_bias{}")]
Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Member `stream_options` of a request."""

    include_usage: bool = False
    include_obfuscation: bool = False
    """Accepted without effect: events are never padded."""
    continuous_usage_stats: bool = False
    """True if every event of a stream with `include_usage` carries the usage so far."""


class TextPart(msgspec.Struct, frozen=True):
    """Content part of a message; only text is served."""

    type: Literal["text"]
    text: str


class Message(msgspec.Struct, frozen=True):
    """One chat message. Only an assistant message may lack content, and only if it calls tools or refuses."""

    role: Role
    content: str | Annotated[list[TextPart], bounds("messages[].content")] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: str | None = None
    """Refusal text of an answer without content."""
    reasoning_content: str | None = None
    """Reasoning of an earlier answer, for chat templates that read it."""

    @property
    def text(self) -> str:
        """Content of the message with its text parts joined, or its refusal."""
        if self.content is None:
            return self.refusal or ""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)

    @property
    def num_chars(self) -> int:
        """Number of characters of the content and the tool calls; few templates read the reasoning."""
        calls = self.tool_calls or ()
        return len(self.text) + sum(len(call.function.name) + len(call.function.arguments) for call in calls)


class PredictedContent(msgspec.Struct, frozen=True):
    """Member `prediction` of a request: what the answer may be, for draft tokens."""

    type: Literal["content"] = "content"
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        """Predicted text with its parts joined."""
        content = self.content or ""
        return content if isinstance(content, str) else "".join(part.text for part in content)


class SamplingFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that both endpoints share. None means the field's default, as in the OpenAI API."""

    model: Annotated[str, bounds("model")]
    max_tokens: Annotated[int, bounds("max_tokens")] | None = None
    temperature: Annotated[float, bounds("temperature")] | None = None
    top_p: Annotated[float, bounds("top_p")] | None = None
    top_k: Annotated[int, bounds("top_k")] | None = None
    min_p: Annotated[float, bounds("min_p")] | None = None
    n: Annotated[int, bounds("n")] | None = None
    stop: StopString | Annotated[list[StopString], bounds("stop")] | None = None
    seed: Annotated[int, bounds("seed")] | None = None
    presence_penalty: Annotated[float, bounds("presence_penalty")] | None = None
    frequency_penalty: Annotated[float, bounds("frequency_penalty")] | None = None
    repetition_penalty: Annotated[float, bounds("repetition_penalty")] | None = None
    logit_bias: Annotated[dict[TokenId, Bias], bounds("logit_bias")] | None = None
    min_tokens: Annotated[int, bounds("min_tokens")] | None = None
    """Extension: minimum number of tokens before the end of text may be sampled."""
    ignore_eos: bool | None = None
    """Extension: True if the end-of-text tokens do not end the answer, for load tests with fixed lengths."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str, bounds("user")] | None = None
    metadata: dict[str, Any] | None = None
    service_tier: Annotated[str, bounds("service_tier")] | None = None
    """`flex` selects the batch lane; other tiers have no effect."""
    prompt_cache_key: Annotated[str, bounds("prompt_cache_key")] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop strings in the client's order."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def num_choices(self) -> int:
        """Number of requested choices."""
        return self.n or 1

    @property
    def include_usage(self) -> bool:
        """True if a stream ends with a usage event."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def shows_usage(self) -> bool:
        """True if every event of a stream carries the usage so far."""
        return self.include_usage and self.stream_options is not None and self.stream_options.continuous_usage_stats


class ChatBody(SamplingFields, frozen=True, kw_only=True):
    """Body of `POST /v1/chat/completions`."""

    messages: Annotated[list[Message], bounds("messages")]
    max_completion_tokens: Annotated[int, bounds("max_completion_tokens")] | None = None
    best_of: Annotated[int, bounds("best_of")] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, bounds("top_logprobs")] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], bounds("tools")] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    """Variables for the chat template; each must be one that the template reads."""
    prediction: PredictedContent | None = None
    """Draft tokens come from it; the answer is the same without it."""
    reasoning_effort: Any = None
    """Handed to a chat template in the form that it reads, otherwise without effect."""
    reasoning: Any = None
    thinking: Any = None
    enable_thinking: Any = None
    include_reasoning: Any = None

    @property
    def effort(self) -> object:
        """Effort that the request asks for, in whichever member it does; None: the template's default."""
        return requested_effort(self.reasoning_effort, self.reasoning, (self.thinking, self.enable_thinking))

    @property
    def hides_reasoning(self) -> bool:
        """True if the answer must not show its reasoning, which still counts as usage."""
        excludes = isinstance(self.reasoning, dict) and self.reasoning.get("exclude") is True
        return excludes or self.include_reasoning is False

    @property
    def tool_use(self) -> ToolUse | None:
        """Tools that the model may or must call; None: none. The request must have passed `parse_chat`."""
        return choose_tools(self.tools, self.tool_choice, self.parallel_tool_calls)

    @property
    def output_limit(self) -> int | None:
        """Maximum number of output tokens, the newer field's where both are set; None without a limit."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def num_top_logprobs(self) -> int | None:
        """Number of alternatives per token; None without logprobs."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(SamplingFields, frozen=True, kw_only=True):
    """Body of `POST /v1/completions`: a prompt as text or as token ids, or a list of either."""

    prompt: str | list[Any]
    logprobs: Annotated[int, bounds("top_logprobs")] | None = None
    best_of: int | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """Prompts in the client's order; the request must have passed `parse_completion`."""
        if isinstance(self.prompt, str) or isinstance(self.prompt[0], int):
            return [self.prompt]
        return self.prompt

    @property
    def output_limit(self) -> int | None:
        """Maximum number of output tokens; None if the client sets no limit."""
        return self.max_tokens

    @property
    def num_top_logprobs(self) -> int | None:
        """Number of alternatives per token; None without logprobs."""
        return self.logprobs


def parse_chat(body: bytes, config: FrontConfig) -> ChatBody:
    """Parse and validate a chat request.

    Raises:
        ApiError: The request is wrong (400) or names another model (404); the error names the field.
    """
    request = _convert(parse_object(body), ChatBody, KNOWN_FIELDS)
    _check_common(request, config)
    check_response_format(request.response_format)
    check_tools(request.tools)
    choose_tools(request.tools, request.tool_choice, request.parallel_tool_calls)
    if request.top_logprobs is not None and not request.logprobs:
        raise wrong_request(lonely_field("top_logprobs", "logprobs"))
    _check_limit("top_logprobs", request.top_logprobs, min(config.answers.max_top_logprobs, MAX_SERVED_TOP_LOGPROBS), 0)
    _check_turns(request.messages)
    check_options(request.chat_template_kwargs or {})
    return request


_OF_COMPLETIONS: Final = {
    **KNOWN_FIELDS,
    "prompt": KnownField(type="any", gateway="reads", engine="serves", must="be a string or a list of token ids"),
    "logprobs": KNOWN_FIELDS["top_logprobs"],
    "best_of": KnownField(type="integer", gateway="checks", engine="refuses", because="send n"),
}
"""The field table with the rules that differ on `/v1/completions`."""


def parse_completion(body: bytes, config: FrontConfig) -> CompletionRequest:
    """Parse and validate a completion request.

    Raises:
        ApiError: The request is wrong (400) or names another model (404); the error names the field.
    """
    request = _convert(parse_object(body), CompletionRequest, _OF_COMPLETIONS)
    _check_common(request, config)
    _check_limit("logprobs", request.logprobs, min(config.answers.max_top_logprobs, MAX_SERVED_TOP_LOGPROBS), 0)
    if request.best_of is not None and request.best_of != request.num_choices:
        raise unsupported(unserved_field("best_of", _OF_COMPLETIONS["best_of"]))
    _check_prompt(request.prompt)
    return request


_Request = TypeVar("_Request", bound=SamplingFields)


def _convert(document: dict[str, Any], kind: type[_Request], rules: dict[str, KnownField]) -> _Request:
    refuse_privileged(document)
    value = without_absent(document)
    if isinstance(value.get("messages"), list):
        value["messages"] = modern_history(value["messages"])
    refuse_unserved(value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise wrong_request(field_refusal(str(error), value, rules)) from error


def _check_common(request: SamplingFields, config: FrontConfig) -> None:
    adapter_of(request.model, config)
    _check_limit("n", request.n, config.answers.max_choices, 1)
    if request.stream_options is not None and not request.stream:
        raise wrong_request(lonely_field("stream_options", "stream"))


def _check_limit(name: str, value: int | None, most: int, least: int) -> None:
    """Hold a number to the engine's own limit, which its configuration may set lower than the table does."""
    if value is not None and value > most:
        raise invalid_value(name, f"`{name}` must be between {least} and {most}; got {value}.")


def _check_turns(messages: list[Message]) -> None:
    """Check the members that a message needs for its role."""
    for i, message in enumerate(messages):
        place = f"messages[{i}]"
        if message.tool_calls is not None and message.role != "assistant":
            where = f"{place}.tool_calls"
            raise invalid_value(where, f"`{where}` must not be sent unless the role is assistant.")
        if message.content is None and not message.tool_calls and message.refusal is None:
            raise wrong_request(missing_field(f"{place}.content"))
        if message.role == "tool" and message.tool_call_id is None:
            raise wrong_request(missing_field(f"{place}.tool_call_id"))


def _check_prompt(prompt: str | list[Any]) -> None:
    if not prompt:
        raise invalid_value("prompt", "`prompt` must have at least one character or token.")
    if isinstance(prompt, str):
        return
    if not isinstance(prompt[0], str | list):
        _check_tokens("prompt", prompt)
        return
    if len(prompt) > MAX_PROMPTS:
        raise invalid_value("prompt", f"`prompt` must have at most {MAX_PROMPTS} prompts; got {len(prompt)}.")
    for i, item in enumerate(prompt):
        place = f"prompt[{i}]"
        if type(item) is not type(prompt[0]):
            raise invalid_value(place, f"`{place}` must be of the same kind as the first prompt.")
        if not item:
            raise invalid_value(place, f"`{place}` must have at least one character or token.")
        if isinstance(item, list):
            _check_tokens(place, item)


def _check_tokens(place: str, tokens: list[Any]) -> None:
    for i, token in enumerate(tokens):
        if type(token) is not int or not 0 <= token < 2**31:
            raise invalid_value(f"{place}[{i}]", f"`{place}[{i}]` must be a token id; got {str(token)[:40]}.")

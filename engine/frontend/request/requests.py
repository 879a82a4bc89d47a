"""Requests of the completions endpoints, parsed once and strictly into frozen structs.

A field that this engine does not serve causes a 400 that names it. The fields in `IGNORED` are accepted without
effect, as are the extra members of an answer that a client sends back. Null and empty members count as absent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from engine.config import FrontConfig
from engine.frontend.request.absent import without_absent
from engine.frontend.request.errors import ApiError, invalid_value, unsupported
from engine.frontend.request.response_format import ResponseFormat, check_response_format
from engine.frontend.request.strict_json import parse_object
from engine.frontend.request.tools import FunctionCall, Tool, ToolCall, ToolUse, check_tools, choose_tools

IGNORED = frozenset({"user", "store", "metadata", "service_tier", "prompt_cache_key", "safety_identifier"})
"""Fields accepted without effect on the answer (`service_tier: "flex"` also selects the batch lane)."""
PRIVILEGED = frozenset(
    {"api_base", "base_url", "custom_host", "api_key", "chat_template", "chat_template_kwargs", "trust_remote_code"}
)
"""Fields that a client may never set."""
MAX_MESSAGES = 4096
MAX_STOPS = 16
MAX_STOP_CHARS = 512
MAX_LOGIT_BIASES = 300
MAX_SERVED_TOP_LOGPROBS = 20
MAX_PROMPTS = 64
"""Prompts of one completion request."""

PositiveInt = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Bias = Annotated[float, Meta(ge=-100.0, le=100.0)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Role = Literal["system", "developer", "user", "assistant", "tool"]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Member `stream_options` of a request."""

    include_usage: bool = False
    include_obfuscation: bool = False
    """Accepted without effect: events are never padded."""


class TextPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content part of a message; only text is served."""

    type: Literal["text"]
    text: str


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One chat message. Only an assistant message may lack content, and only if it calls tools or refuses."""

    role: Role
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: str | None = None
    """Refusal text of an answer without content."""

    @property
    def text(self) -> str:
        """Content of the message with its text parts joined, or its refusal."""
        if self.content is None:
            return self.refusal or ""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)

    @property
    def num_chars(self) -> int:
        """Number of characters of the content and the tool calls."""
        calls = self.tool_calls or ()
        return len(self.text) + sum(len(call.function.name) + len(call.function.arguments) for call in calls)


class SamplingFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields that both endpoints share. None means the field's default, as in the OpenAI API."""

    model: str
    max_tokens: PositiveInt | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    n: PositiveInt | None = None
    stop: str | list[str] | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None
    logit_bias: dict[str, Bias] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """Extension: minimum number of tokens before the end of text may be sampled."""
    ignore_eos: bool | None = None
    """Extension: True if the end-of-text tokens do not end the answer, for load tests with fixed lengths."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    service_tier: Literal["auto", "default", "flex", "priority", "scale", "standard_only"] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None

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


class ChatBody(SamplingFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/chat/completions`."""

    messages: list[Message]
    max_completion_tokens: PositiveInt | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0)] | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None

    @property
    def tool_use(self) -> ToolUse | None:
        """Tools that the model may or must call; None: none. The request must have passed `parse_chat`."""
        return choose_tools(self.tools, self.tool_choice, self.parallel_tool_calls)

    @property
    def output_limit(self) -> int | None:
        """Maximum number of output tokens; None if the client sets no limit."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def num_top_logprobs(self) -> int | None:
        """Number of alternatives per token; None without logprobs."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(SamplingFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/completions`: a prompt as text or as token ids, or a list of either."""

    prompt: str | list[Any]
    logprobs: Annotated[int, Meta(ge=0)] | None = None
    echo: bool | None = None
    suffix: str | None = None
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
    request = _convert(parse_object(body), ChatBody)
    _check_common(request, config)
    check_response_format(request.response_format)
    check_tools(request.tools)
    choose_tools(request.tools, request.tool_choice, request.parallel_tool_calls)
    if not request.messages:
        raise invalid_value("messages", "messages: expected at least one message.")
    if len(request.messages) > MAX_MESSAGES:
        raise invalid_value(
            "messages", f"messages: {len(request.messages)} messages exceed the limit of {MAX_MESSAGES}."
        )
    if request.max_tokens and request.max_completion_tokens and request.max_tokens != request.max_completion_tokens:
        raise invalid_value("max_tokens", "max_tokens: differs from max_completion_tokens; send only one of them.")
    if request.top_logprobs is not None and not request.logprobs:
        raise invalid_value("top_logprobs", "top_logprobs: needs logprobs to be true.")
    _check_top_logprobs("top_logprobs", request.top_logprobs, config)
    _check_turns(request.messages)
    return request


def parse_completion(body: bytes, config: FrontConfig) -> CompletionRequest:
    """Parse and validate a completion request.

    Raises:
        ApiError: The request is wrong (400) or names another model (404); the error names the field.
    """
    request = _convert(parse_object(body), CompletionRequest)
    _check_common(request, config)
    _check_top_logprobs("logprobs", request.logprobs, config)
    if request.echo:
        raise unsupported("echo", "echo: not served; the prompt is not repeated.")
    if request.suffix:
        raise unsupported("suffix", "suffix: not served.")
    if request.best_of is not None and request.best_of != request.num_choices:
        raise unsupported("best_of", "best_of: not served; use n.")
    _check_prompt(request.prompt)
    return request


_Request = TypeVar("_Request", bound=SamplingFields)


def _convert(document: dict[str, Any], kind: type[_Request]) -> _Request:
    _check_privileged(document)
    value = without_absent(document)
    _check_names(value, kind)
    _check_messages(value.get("messages"))
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        param, reason = _location(str(error))
        raise invalid_value(param, f"{param}: {reason}.") from error


def _check_privileged(document: dict[str, Any]) -> None:
    """Refuse every privileged field, with any value; only `chat_template_kwargs` may be present and empty."""
    for name in PRIVILEGED & document.keys():
        if name != "chat_template_kwargs" or document[name]:
            raise unsupported(name, f"{name}: may not be set by a request.")


def _check_names(value: dict[str, Any], kind: type[SamplingFields]) -> None:
    for name in value:
        if name not in kind.__struct_fields__:
            shown = name[:64]
            raise unsupported(shown, f"{shown}: this engine does not serve this field; remove it.")


_UNSERVED_TURNS = ("function_call", "audio")
"""Members that replace the text of an answer; dropping them would change the conversation."""


def _check_messages(messages: object) -> None:
    """Refuse message faults that a typed decode would describe badly: unserved fields and parts that are not text."""
    if not isinstance(messages, list):
        return
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        place = f"messages[{i}]"
        for name in _UNSERVED_TURNS:
            if name in message:
                raise unsupported(f"{place}.{name}", f"{place}.{name}: this engine does not serve this field.")
        if message.get("role") == "assistant":
            _take_back(message)
        for name in message:
            if name not in Message.__struct_fields__:
                shown = f"{place}.{name[:64]}"
                raise unsupported(shown, f"{shown}: this engine does not serve this field; remove it.")
        content = message.get("content")
        for j, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict) and isinstance(part.get("type"), str) and part["type"] != "text":
                where = f"{place}.content[{j}].type"
                raise unsupported(
                    where, f"{where}: this model reads text only, got a part of type {part['type'][:64]!r}."
                )


def _take_back(answer: dict[str, Any]) -> None:
    """Reduce an answer that a client sends back to its text, its refusal and its tool calls."""
    if answer.keys() - set(Message.__struct_fields__):
        answer.setdefault("content", answer.get("refusal", ""))  # such as an answer that ended during its reasoning
    _keep(answer, Message.__struct_fields__)
    calls, content = answer.get("tool_calls"), answer.get("content")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            _keep(call, ToolCall.__struct_fields__)
            if isinstance(call.get("function"), dict):
                _keep(call["function"], FunctionCall.__struct_fields__)
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "refusal":
            part["type"], part["text"] = "text", part.get("refusal", "")
        if isinstance(part, dict) and part.get("type") == "text":
            _keep(part, TextPart.__struct_fields__)


def _keep(value: dict[str, Any], names: Sequence[str]) -> None:
    for name in value.keys() - set(names):
        del value[name]


_PLACE = re.compile(r"^(?P<reason>.*?)(?: - at `(?P<key>key in )?\$?\.?(?P<path>.*?)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>\w+)`$")


def _location(message: str) -> tuple[str, str]:
    """Split one of msgspec's messages into parameter and reason.

    An example is ("messages[0].role", "Expected `str`, got `int`").
    """
    match = _PLACE.match(message)
    assert match is not None
    path, reason = (match["path"] or "").replace("[...]", ""), match["reason"]
    missing = _MISSING.match(reason)
    if missing:
        return (f"{path}.{missing['name']}" if path else missing["name"]), "required, but missing"
    return path, reason


def _check_common(request: SamplingFields, config: FrontConfig) -> None:
    if request.model != config.model_name:
        raise ApiError(
            404,
            f"The model {request.model[:128]!r} does not exist here; this engine serves {config.model_name!r}.",
            param="model",
            code="model_not_found",
        )
    if request.num_choices > config.max_choices:
        raise invalid_value("n", f"n: {request.num_choices} exceeds the limit of {config.max_choices}.")
    _check_stops(request.stops)
    _check_logit_bias(request.logit_bias or {})
    if request.stream_options is not None and not request.stream:
        raise invalid_value("stream_options", "stream_options: only allowed when stream is true.")


def _check_stops(stops: tuple[str, ...]) -> None:
    if len(stops) > MAX_STOPS:
        raise invalid_value("stop", f"stop: {len(stops)} strings exceed the limit of {MAX_STOPS}.")
    for i, stop in enumerate(stops):
        if not stop or len(stop) > MAX_STOP_CHARS:
            raise invalid_value(f"stop[{i}]", f"stop[{i}]: expected 1 to {MAX_STOP_CHARS} characters, got {len(stop)}.")


def _check_logit_bias(logit_bias: dict[str, float]) -> None:
    if len(logit_bias) > MAX_LOGIT_BIASES:
        raise invalid_value(
            "logit_bias", f"logit_bias: {len(logit_bias)} entries exceed the limit of {MAX_LOGIT_BIASES}."
        )
    for key in logit_bias:
        if not (key.isascii() and key.isdigit() and len(key) <= 9):
            raise invalid_value("logit_bias", f"logit_bias: keys are token ids, got {key[:32]!r}.")


def _check_top_logprobs(name: str, value: int | None, config: FrontConfig) -> None:
    limit = min(config.max_top_logprobs, MAX_SERVED_TOP_LOGPROBS)
    if value is not None and value > limit:
        raise invalid_value(name, f"{name}: {value} exceeds the limit of {limit}.")


def _check_turns(messages: list[Message]) -> None:
    """Check the members that a message needs for its role."""
    for i, message in enumerate(messages):
        place = f"messages[{i}]"
        if message.tool_calls is not None and message.role != "assistant":
            raise invalid_value(f"{place}.tool_calls", f"{place}.tool_calls: only allowed in assistant messages.")
        if message.content is None and not message.tool_calls and message.refusal is None:
            raise invalid_value(f"{place}.content", f"{place}.content: required, but missing.")
        if message.role == "tool" and message.tool_call_id is None:
            raise invalid_value(f"{place}.tool_call_id", f"{place}.tool_call_id: required, but missing.")


def _check_prompt(prompt: str | list[Any]) -> None:
    if isinstance(prompt, str):
        if not prompt:
            raise invalid_value("prompt", "prompt: expected at least one character.")
        return
    if not prompt:
        raise invalid_value("prompt", "prompt: expected at least one token.")
    if not isinstance(prompt[0], str | list):
        _check_tokens("prompt", prompt)
        return
    if len(prompt) > MAX_PROMPTS:
        raise invalid_value("prompt", f"prompt: {len(prompt)} prompts exceed the limit of {MAX_PROMPTS}.")
    for i, item in enumerate(prompt):
        if type(item) is not type(prompt[0]):
            raise invalid_value(f"prompt[{i}]", f"prompt[{i}]: expected the same kind of prompt as the first one.")
        if not item:
            raise invalid_value(f"prompt[{i}]", f"prompt[{i}]: expected at least one character or token.")
        if isinstance(item, list):
            _check_tokens(f"prompt[{i}]", item)


def _check_tokens(place: str, tokens: list[Any]) -> None:
    for i, token in enumerate(tokens):
        if type(token) is not int or not 0 <= token < 2**31:
            raise invalid_value(f"{place}[{i}]", f"{place}[{i}]: expected a token id.")

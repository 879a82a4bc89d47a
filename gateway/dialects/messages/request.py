"""MessagesParser: bodies of the Messages API as chat requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from gateway.chat.fields.table import PRIVILEGED_FIELDS
from gateway.chat.item_limits import item_limits
from gateway.chat.request import ChatRequest, ChatRequestParser, whole_numbers
from gateway.chat.schema import CONTENT_BLOCKS
from gateway.chat.strict_json import JsonGuard
from gateway.dialects.messages.conversation import ChatTurns
from gateway.dialects.messages.projection import BETAS, NEEDED, NO_EFFECT, STOPS, PlainProjection, needs_anthropic
from gateway.dialects.messages.rules import at_path, message_fault
from gateway.dialects.messages.schema import CountTokensFields, MessageFields
from gateway.dialects.messages.tools import OWN_TOOLS, chat_tool_choice, chat_tools
from gateway.dialects.own_words import in_own_words, refuse_names_of_chat, with_own_kinds
from gateway.errors import InvalidRequest

_T = TypeVar("_T")
_TRANSLATED: Final = frozenset(
    {
        *("model", "messages", "system", "max_tokens", "stream", "stop_sequences", "metadata", "tools"),
        *("tool_choice", "service_tier", "stream_options", "n"),
    }
)
_CHAT_NAMES: Final = {
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
    "user": "metadata.user_id",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "response_format": "output_config.format",
}
"""Names of this API by those of chat completions."""
_REFUSED_NAMES: Final = {**_CHAT_NAMES, "functions": "tools", "function_call": "tool_choice", OWN_TOOLS: "tools"}
_STATED_EFFORT: Final = {**_REFUSED_NAMES, "reasoning_effort": "output_config.effort"}
_KINDS: Final = {"image_url": "image", "file": "document"}
"""Types of content blocks by those of parts."""
_PLACE: Final = re.compile(r"messages\[(\d+)\](?:\.content\[(\d+)\])?")
_CARRIED: Final = re.compile(rf"\.{CONTENT_BLOCKS}\[(\d+)\]")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_INTEGERS: Final = ("max_tokens", "top_k")
_REASONING_INTEGERS: Final = ("budget_tokens",)
_TIERS: Final = {"auto": "auto", "standard_only": "default"}


class MessagesParser:
    """Parser of requests; refusals name the fields of the client's own request."""

    __slots__ = ("_guard", "_parser")

    def __init__(self, parser: ChatRequestParser) -> None:
        """Create a parser; `parser` checks the chat documents that it makes."""
        self._parser = parser
        names = frozenset(MessageFields.__struct_encode_fields__)
        self._guard = JsonGuard(names | PRIVILEGED_FIELDS, item_limits(MessageFields))

    def parse(self, body: bytes, betas: list[str] | None = None) -> ChatRequest:
        """Return the request for a message; `betas` are the values of `anthropic-beta`. Raises InvalidRequest."""
        return self.translate(body, betas)[0]

    def translate(self, body: bytes, betas: list[str] | None) -> tuple[ChatRequest, ChatTurns]:
        """Return the request for a message, and the turns that its messages come from. Raises InvalidRequest."""
        fields, document = _converted(self._document(body), MessageFields)
        chat: dict[str, Any] = {"max_completion_tokens": fields.max_tokens}
        if fields.stream:
            chat |= {"stream": True, "stream_options": {"include_usage": True}}
        if fields.stop_sequences:
            chat |= {"stop": fields.stop_sequences, STOPS: fields.stop_sequences}
        if fields.metadata is not None and fields.metadata.user_id:
            chat["user"] = fields.metadata.user_id
        if fields.service_tier is not None:
            chat["service_tier"] = _TIERS.get(fields.service_tier, fields.service_tier)
        return self._request(document, fields, chat, betas)

    def parse_count(self, document: dict[str, Any]) -> ChatRequest:
        """Return a request whose tokens are to be counted, without a limit to its answer. Raises InvalidRequest."""
        fields, present = _converted(_present(document), CountTokensFields)
        return self._request(present, fields, {}, None)[0]

    def _document(self, body: bytes) -> dict[str, Any]:
        if body.startswith(_BYTE_ORDER_MARK):
            message = "The body begins with a byte-order mark. Send plain UTF-8 without one."
            raise InvalidRequest(message, code="invalid_json")
        return _present(self._guard.read(body)[0])

    def _request(
        self, document: dict[str, Any], fields: CountTokensFields, chat: dict[str, Any], betas: list[str] | None
    ) -> tuple[ChatRequest, ChatTurns]:
        refuse_names_of_chat(document, _STATED_EFFORT if _has_effort(fields) else _REFUSED_NAMES)
        turns = ChatTurns()
        if fields.system is not None:
            turns.add_system(fields.system)
        for index, turn in enumerate(fields.messages):
            turns.add(turn, index)
        found = {"model": fields.model, "messages": turns.messages, **chat}
        is_extended = turns.is_extended or STOPS in found
        if "tools" in document:
            is_extended |= _add_tools(found, document["tools"])
        if fields.tool_choice is not None:
            found |= chat_tool_choice(fields.tool_choice)
        for name, value in document.items():
            if name not in _TRANSLATED:
                found[name] = value
                is_extended |= name in NO_EFFECT or name in NEEDED
        _add_format(found, document)
        if betas and is_extended:
            found[BETAS] = betas
        projection = PlainProjection(_refusal(found, turns), has_stops=STOPS in found) if is_extended else None
        try:
            return self._parser.accept(found, projection, turns.media_bytes), turns
        except InvalidRequest as error:
            raise at_path(error, lambda path: client_path(path, turns)) from None


def client_message(message: str, field: str, turns: ChatTurns) -> str:
    """Return a message about a field of the chat document in the words of the client's request."""
    return in_own_words(with_own_kinds(message, field, _KINDS), field, client_path(field, turns))


def client_path(path: str, turns: ChatTurns) -> str:
    """Return the path of a field of the chat document in the client's request."""
    head = path.partition(".")[0].partition("[")[0]
    if head in _CHAT_NAMES:
        return _CHAT_NAMES[head] + path.removeprefix(head)
    if head in ("tools", "tool_choice"):
        return path.replace(".function.parameters", ".input_schema", 1).replace(".function", "", 1)
    place = _PLACE.match(path)
    if place is None or int(place[1]) >= len(turns.origins):
        return path
    where, parts = turns.origins[int(place[1])]
    rest = path[place.end() :]
    if place[2] is None:
        return _native_path(where, rest, int(place[1]), turns)
    part = int(place[2])
    rest = rest.replace(".image_url", ".source").replace(".file", ".source")
    return (parts[part] if part < len(parts) else f"{where}.content[{part}]") + rest


def _native_path(where: str, rest: str, number: int, turns: ChatTurns) -> str:
    """Return the path of a member of a message; that of a block which was carried is the block's own."""
    found = _CARRIED.match(rest)
    if found is None:
        return where + rest
    stored = turns.messages[number][CONTENT_BLOCKS][int(found[1])]
    block = {name: value for name, value in stored.items() if name != "index"}
    return next((path for path, native in turns.native if native == block), where) + rest[found.end() :]


def _converted(document: dict[str, Any], kind: type[_T]) -> tuple[_T, dict[str, Any]]:
    """Return the typed fields, and the document with integers in place of floats such as 7.0.

    Raises:
        InvalidRequest: A field is wrong.
    """
    try:
        return msgspec.convert(document, kind), document
    except msgspec.ValidationError:
        mended = {**document, **whole_numbers(document, _INTEGERS)}
    if isinstance(setting := document.get("thinking"), dict):
        mended["thinking"] = {**setting, **whole_numbers(setting, _REASONING_INTEGERS)}
    try:
        return msgspec.convert(mended, kind), mended
    except msgspec.ValidationError as error:
        raise message_fault(str(error), document) from None


def _present(document: dict[str, Any]) -> dict[str, Any]:
    """Return the members that are neither null nor empty."""
    return {name: value for name, value in document.items() if value is not None and value not in ({}, [])}


def _add_tools(chat: dict[str, Any], tools: list[dict[str, Any]]) -> bool:
    """Add the tools to the chat document; return whether it has members beyond those of chat completions."""
    functions, stored = chat_tools(tools)
    if functions:
        chat["tools"] = functions
    if stored:
        chat[OWN_TOOLS] = stored
    return bool(stored) or any(len(tool) > 2 for tool in functions)


def _has_effort(fields: CountTokensFields) -> bool:
    return fields.output_config is not None and fields.output_config.effort is not None


def _add_format(chat: dict[str, Any], document: dict[str, Any]) -> None:
    """Add the schema that the answer follows."""
    setting = document.get("output_config")
    stated = (setting.get("format") if isinstance(setting, dict) else None) or document.get("output_format")
    if isinstance(stated, dict) and stated.get("type") == "json_schema":
        schema = {"name": "answer", "schema": stated.get("schema"), "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}


def _refusal(chat: dict[str, Any], turns: ChatTurns) -> InvalidRequest | None:
    """Return the refusal of a server of chat completions, for the first part that it cannot be given."""
    path = next((name for name in NEEDED if chat.get(name)), None)
    if path is None and chat.get(OWN_TOOLS):
        tool = chat[OWN_TOOLS][0]
        path = f"tools[{tool['index']}].type"
    if path is None:
        path = next(_paths_in_need(turns), None)
    if path is None:
        return None
    message = f"`{path}`: only a deployment of Anthropic's API can serve this, and this model has none. Remove it."
    return InvalidRequest(message, param=path, code="unsupported_parameter")


def _paths_in_need(turns: ChatTurns) -> Iterator[str]:
    for path, block in turns.native:
        member = needs_anthropic(block)
        if member is not None:
            yield f"{path}.{member}"

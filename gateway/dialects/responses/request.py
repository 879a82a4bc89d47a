"""ResponsesRequest: a request of the Responses API, and the chat request that it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.chat.strict_json import JsonGuard
from gateway.dialects.client_dialect import StateNeeded
from gateway.dialects.own_words import refuse_names_of_chat
from gateway.dialects.responses.field_paths import REFUSED_NAMES
from gateway.dialects.responses.input_messages import InputMessages
from gateway.dialects.responses.projection import OWN_FIELDS, ChatProjection
from gateway.dialects.responses.tools import choice_as_chat, tools_as_chat
from gateway.errors import InvalidRequest

_MAX_ITEMS: Final = 4096
_SAME: Final = frozenset(
    {"model", "stream", "temperature", "top_p", "parallel_tool_calls", "user", "prompt_cache_key", "service_tier"}
)
"""Fields of both APIs with one meaning."""
_TRANSLATED: Final = frozenset(
    {"input", "instructions", "max_output_tokens", "reasoning", "text", "tools", "tool_choice", "top_logprobs"}
)
_OF_GATEWAY: Final = frozenset({"metadata", "store", "previous_response_id", "stream_options", "background_options"})
"""Fields that end here: chat completions have none of that meaning."""
_STATEFUL: Final[dict[str, str]] = {
    "conversation": "conversations are not kept here. Send the whole conversation in `input`",
    "prompt": "prompt templates are not kept here. Send their text in `instructions` and `input`",
    "background": "answers are not computed in the background. Use `stream`, or wait for the answer",
}
"""Fields that need what the gateway does not have, with the remedy."""
_KINDS: Final[dict[str, tuple[type, str]]] = {"store": (bool, "true or false"), "metadata": (dict, "an object")}
"""Types of the fields that end here."""
_LOGPROBS: Final = "message.output_text.logprobs"
_WITH_USAGE: Final = {"include_usage": True}
_REFERENCE: Final = "item_reference"
_TOP_LEVEL: Final = _SAME | _TRANSLATED | OWN_FIELDS | _OF_GATEWAY | _STATEFUL.keys()

Items = Sequence[Mapping[str, Any]]


class ResponsesRequest(msgspec.Struct, frozen=True, gc=False):
    """A parsed request."""

    document: dict[str, Any]
    """Members that are present, as the client sent them."""
    items: list[Any]
    """Input items of the conversation: those of earlier responses, then the client's own."""
    num_recalled: int
    """Number of items that come from earlier responses."""
    messages: InputMessages
    chat: ChatRequest

    @property
    def wants_store(self) -> bool:
        """Return whether the response is to be kept, where the policy keeps any."""
        return self.document.get("store") is not False


class ResponsesParser:
    """Parser of request bodies of the Responses API."""

    __slots__ = ("_chat", "_guard")

    def __init__(self, chat: ChatRequestParser) -> None:
        """Create a parser; `chat` checks what the request becomes."""
        self._chat = chat
        self._guard = JsonGuard(_TOP_LEVEL - {"text", "tools"}, {"input": _MAX_ITEMS})

    def read(self, body: bytes) -> dict[str, Any]:
        """Return the members of a body that are present; null and empty ones count as absent.

        Raises:
            InvalidRequest: The body is no acceptable JSON.
        """
        document = self._guard.decode(body)
        return {name: value for name, value in document.items() if value is not None and value not in ("", [], {})}

    def parse(self, document: dict[str, Any], recalled: Mapping[str, Items], *, is_long: bool) -> ResponsesRequest:
        """Return the request.

        Args:
            document: The members of the body.
            recalled: Items of earlier responses, by the id by which the request refers to them.
            is_long: Whether the conversation is too long to be encoded in one call.

        Raises:
            InvalidRequest: A field is wrong; `param` is its path in the client's words.
            StateNeeded: The request refers to responses that are not in `recalled`.
        """
        _refuse_stateful(document)
        refuse_names_of_chat(document, REFUSED_NAMES)
        _check_kinds(document)
        _require_recalled(document, recalled)
        before = _before(document, recalled)
        sent = _sent_items(document, has_history=bool(before))
        items = [*before, *_resolved(sent, recalled)]
        messages = InputMessages()
        if "instructions" in document:
            messages.add_text("system", _text(document, "instructions"), "instructions")
        for item in before:
            messages.add(item, "previous_response_id")
        if isinstance(document.get("input"), str):
            messages.add_text("user", document["input"], "input")
        else:
            for index, item in enumerate(items[len(before) :]):
                messages.add(item, f"input[{index}]")
        own = {name: value for name, value in document.items() if name in OWN_FIELDS} | _details(document)
        chat = {**_chat_fields(document), "messages": messages.messages, **own}
        projection = ChatProjection(messages.refusal) if own or messages.has_items else None
        try:
            request = self._chat.accept(chat, projection, messages.media_bytes, may_be_long=is_long)
        except InvalidRequest as error:
            raise messages.paths.translated(error) from None
        return ResponsesRequest(document, items, len(before), messages, request)


def _refuse_stateful(document: dict[str, Any]) -> None:
    for name, reason in _STATEFUL.items():
        if document.get(name):
            raise InvalidRequest(f"`{name}` cannot be served: {reason}.", param=name, code="unsupported_parameter")


def _check_kinds(document: dict[str, Any]) -> None:
    for name, (kind, words) in _KINDS.items():
        if name in document and not isinstance(document[name], kind):
            raise InvalidRequest(f"`{name}` must be {words}.", param=name)


def _before(document: dict[str, Any], recalled: Mapping[str, Items]) -> Items:
    """Return the items of the response that the request continues."""
    return recalled[document["previous_response_id"]] if "previous_response_id" in document else ()


def _sent_items(document: dict[str, Any], *, has_history: bool) -> list[Any]:
    """Return the items of `input`; a string is one message of the user."""
    sent = document.get("input")
    if isinstance(sent, str):
        return [{"type": "message", "role": "user", "content": sent}]
    if sent is None and has_history:
        return []
    if sent is None:
        raise InvalidRequest("`input` is required.", param="input")
    if not isinstance(sent, list):
        raise InvalidRequest("`input` must be a string or a list of items.", param="input")
    if len(sent) > _MAX_ITEMS:
        raise InvalidRequest(f"`input` must have at most {_MAX_ITEMS} items; got {len(sent)}.", param="input")
    return sent


def _resolved(sent: list[Any], recalled: Mapping[str, Items]) -> list[Any]:
    """Return the items with references replaced by what they refer to."""
    return [recalled[item["id"]][0] if _is_reference(item) else item for item in sent]


def _require_recalled(document: dict[str, Any], recalled: Mapping[str, Items]) -> None:
    """Check that everything that the request refers to is recalled.

    Raises:
        StateNeeded: Something is not.
    """
    sent = document.get("input")
    names = {
        f"input[{index}].id": item.get("id")
        for index, item in enumerate(sent if isinstance(sent, list) else ())
        if _is_reference(item)
    }
    if "previous_response_id" in document:
        names["previous_response_id"] = document["previous_response_id"]
    for path, name in names.items():
        if not isinstance(name, str):
            raise InvalidRequest(f"`{path}` must be a string.", param=path)
    if names.keys() and not recalled.keys() >= set(names.values()):
        raise StateNeeded(names)


def _is_reference(item: Any) -> bool:
    """Return whether an item only refers to another; the type may be absent beside the id."""
    if not isinstance(item, dict) or "role" in item:
        return False
    return item.get("type") == _REFERENCE or ("id" in item and item.get("type") is None)


def _text(document: dict[str, Any], name: str) -> str:
    value = document[name]
    if not isinstance(value, str):
        raise InvalidRequest(f"`{name}` must be a string.", param=name)
    return value


def _object(document: dict[str, Any], name: str, path: str | None = None) -> dict[str, Any]:
    """Return the present members of an object; empty when it is absent."""
    value = document.get(name, {})
    if not isinstance(value, dict):
        raise InvalidRequest(f"`{path or name}` must be an object.", param=path or name)
    return {key: member for key, member in value.items() if member is not None}


def _list(document: dict[str, Any], name: str) -> list[Any]:
    value = document.get(name, [])
    if not isinstance(value, list):
        raise InvalidRequest(f"`{name}` must be a list.", param=name)
    return value


def _chat_fields(document: dict[str, Any]) -> dict[str, Any]:
    """Return the members of the chat request apart from its messages; unknown ones pass on."""
    fields = {name: value for name, value in document.items() if name in _SAME or name not in _TOP_LEVEL}
    if fields.get("stream") is True:
        fields["stream_options"] = _WITH_USAGE
    if "max_output_tokens" in document:
        fields["max_completion_tokens"] = document["max_output_tokens"]
    effort = _object(document, "reasoning").get("effort")
    if effort is not None:
        fields["reasoning_effort"] = effort
    fields |= _text_fields(document)
    if tools := _list(document, "tools"):
        fields["tools"] = tools_as_chat(tools)
    if "tool_choice" in document:
        fields["tool_choice"] = choice_as_chat(document["tool_choice"])
    if document.get("top_logprobs") or _LOGPROBS in _list(document, "include"):
        fields |= {"logprobs": True, "top_logprobs": document.get("top_logprobs", 0)}
    return fields


def _text_fields(document: dict[str, Any]) -> dict[str, Any]:
    text = _object(document, "text")
    fields = {} if "verbosity" not in text else {"verbosity": text["verbosity"]}
    form = _object(text, "format", "text.format") if "format" in text else {}
    if form.get("type") == "json_schema":
        inner = {name: value for name, value in form.items() if name != "type"}
        fields["response_format"] = {"type": "json_schema", "json_schema": inner}
    elif form and form.get("type") != "text":
        fields["response_format"] = form
    return fields


def _details(document: dict[str, Any]) -> dict[str, Any]:
    """Return the members of `reasoning` that chat completions do not have."""
    rest = {name: value for name, value in _object(document, "reasoning").items() if name != "effort"}
    return {"reasoning": rest} if rest else {}

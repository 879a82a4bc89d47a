"""Conversion of a request's document to typed fields, and the errors that name what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.chat.fields.faults import FieldFault, fault_of, missing_fault, only_with
from gateway.chat.fields.table import FIELD_RULES, FieldRule
from gateway.chat.schema import KNOWN_PARTS, MAX_MESSAGES, OTHER_PART, AssistantMessage, ChatFields, Message
from gateway.errors import InvalidRequest

_OTHER: Final = {"type": OTHER_PART}
_FUNCTION: Final = "function"


def typed_fields(document: dict[str, Any], *, is_long: bool) -> ChatFields:
    """Return the typed fields of a request.

    Args:
        document: Members of the body.
        is_long: True to convert the messages one by one: a call holds the interpreter's lock to its end.

    Raises:
        InvalidRequest: A field is wrong; `param` is the path of the first one.
    """
    try:
        fields = _converted_in_parts(document) if is_long else msgspec.convert(document, ChatFields)
    except msgspec.ValidationError as error:
        raise invalid_field(str(error), document) from None
    _check_relations(fields, document["messages"])
    return fields


def lenient_fields(document: dict[str, Any], *, is_long: bool) -> ChatFields:
    """Return the typed fields of a request that may have parts of kinds that the gateway does not read.

    Raises:
        InvalidRequest: A field that the gateway reads is wrong.
    """
    sent = document.get("messages")
    read = with_known_parts(sent) if isinstance(sent, list) else sent
    if read is sent:
        return typed_fields(document, is_long=is_long)
    return typed_fields({**document, "messages": read}, is_long=is_long)


def typed_messages(messages: list[dict[str, Any]]) -> list[Message]:
    """Return valid messages as typed ones."""
    return msgspec.convert(with_known_parts(messages), list[Message])


def with_known_parts(messages: list[Any]) -> list[Any]:
    """Return the messages with a mark in place of each part that the gateway does not read.

    The list passed in comes back when there is no such part.
    """
    changed = None
    for number, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list) and any(map(_is_other, content)):
            changed = list(messages) if changed is None else changed
            parts = [_OTHER if _is_other(part) else part for part in content]
            changed[number] = {**message, "content": parts}
    return messages if changed is None else changed


def _is_other(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(kind := part.get("type"), str) and kind not in KNOWN_PARTS


def invalid_field(report: str, document: object, rules: Mapping[str, FieldRule] = FIELD_RULES) -> InvalidRequest:
    """Translate msgspec's report of a wrong value into the error that names the field in the client's words."""
    return refused(fault_of(report, document, rules))


def refused(fault: FieldFault) -> InvalidRequest:
    """Return the error of a fault."""
    return InvalidRequest(fault.message, param=fault.param)


def _converted_in_parts(document: dict[str, Any]) -> ChatFields:
    sent = document.get("messages")
    if not isinstance(sent, list) or not 0 < len(sent) <= MAX_MESSAGES:
        return msgspec.convert(document, ChatFields)
    fields = msgspec.convert({**document, "messages": sent[:1]}, ChatFields)
    messages: list[Message] = []
    for number, message in enumerate(sent):
        try:
            messages.append(msgspec.convert(message, Message))
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(_in_message(str(error), number)) from None
    return msgspec.structs.replace(fields, messages=messages)


def _in_message(report: str, number: int) -> str:
    """Return msgspec's report with the path of a message before the path inside of it."""
    reason, found, path = report.rpartition("`$")
    return f"{reason}`$.messages[{number}]{path}" if found else f"{report} - at `$.messages[{number}]`"


def _check_relations(fields: ChatFields, sent: list[dict[str, Any]]) -> None:
    """Check the rules between fields, which types cannot express.

    Args:
        fields: The typed fields.
        sent: The messages as the client wrote them.

    Raises:
        InvalidRequest: A field lacks another one.
    """
    for index, message in enumerate(fields.messages):
        if type(message) is AssistantMessage and message.content is None:
            _check_silent_assistant(index, message, sent[index])
    if fields.tools:
        for index, tool in enumerate(fields.tools):
            if tool.function is None and tool.type == _FUNCTION:
                raise refused(missing_fault(f"tools[{index}].function"))
    if fields.stream_options is not None and not fields.stream:
        raise refused(only_with("stream_options", "stream"))
    if fields.top_logprobs is not None and not fields.logprobs:
        raise refused(only_with("top_logprobs", "logprobs"))


def _check_silent_assistant(index: int, message: AssistantMessage, sent: dict[str, Any]) -> None:
    if message.tool_calls or message.function_call is not None or message.refusal is not None:
        return
    if any(value for name, value in sent.items() if name not in ("role", "name", "content")):
        return  # an answer of reasoning, audio or another extension alone
    raise refused(missing_fault(f"messages[{index}].content"))

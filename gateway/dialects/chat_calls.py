"""Calls of a message of a chat document, in OpenAI's older spelling too."""

from __future__ import annotations

from typing import Any, Final

from gateway.chat.json_members import encoded
from gateway.completion.answer_json import document_of

_OLDER: Final = b'"function_call"'


def calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls of an assistant's message.

    A `function_call` becomes a tool call whose id is the function's name, by which its output refers to it.
    """
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    older = message.get("function_call")
    if not isinstance(older, dict):
        return calls
    return [*calls, {"id": older.get("name"), "type": "function", "function": older}]


def in_tool_calls(completion: bytes) -> bytes:
    """Return a completion in which an older `function_call` is a tool call, unless there are tool calls beside it."""
    if _OLDER not in completion:
        return completion
    document = document_of(completion)
    choices = document.get("choices") if isinstance(document, dict) else None
    for choice in choices if isinstance(choices, list) else ():
        message = choice.get("message") if isinstance(choice, dict) else None
        if isinstance(message, dict) and not message.get("tool_calls") and (calls := calls_of(message)):
            message["tool_calls"] = calls
    return completion if document is None else encoded(document)

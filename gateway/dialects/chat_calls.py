"""Calls of a message of a chat document, in OpenAI's older spelling too."""

from __future__ import annotations

from typing import Any


def calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls of an assistant's message.

    A `function_call` becomes a tool call whose id is the function's name, by which its output refers to it.
    """
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    older = message.get("function_call")
    if not isinstance(older, dict):
        return calls
    return [*calls, {"id": older.get("name"), "type": "function", "function": older}]

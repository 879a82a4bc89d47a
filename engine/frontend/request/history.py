"""History of a conversation in the one form that templates render: older spellings and answers sent back included."""

from __future__ import annotations

from typing import Any, Final

_REASONING: Final = ("reasoning_content", "reasoning", "thinking")
"""Spellings of an earlier answer's reasoning, the most common first."""
_TURN: Final = frozenset({"role", "content", "name", "tool_call_id", "tool_calls", "refusal"})


def modern_history(messages: list[Any]) -> list[Any]:
    """Return the messages without the older spelling of calls, and answers with their text and reasoning as such.

    A message with `role: function` becomes the output of the call of that function.
    """
    return [_modern(message) if isinstance(message, dict) else message for message in messages]


def _modern(message: dict[str, Any]) -> dict[str, Any]:
    role, content = message.get("role"), message.get("content")
    if role == "function":
        output = {"role": "tool", "tool_call_id": _call_id(message.get("name"))}
        return {**message, **output, "content": "" if content is None else content}
    if role != "assistant":
        return message
    changed = dict(message)
    call = changed.pop("function_call", None)
    if isinstance(call, dict) and not changed.get("tool_calls"):
        changed["tool_calls"] = [{"id": _call_id(call.get("name")), "type": "function", "function": call}]
    if changed.keys() - _TURN:
        changed.setdefault("content", changed.get("refusal", ""))  # such as an answer that ended during its reasoning
    texts = [changed.pop(name, None) for name in _REASONING]
    if reasoning := next((text for text in texts if isinstance(text, str) and text), ""):
        changed["reasoning_content"] = reasoning
    if content == []:  # as good as absent
        changed["content"] = ""
    elif isinstance(content, list):
        changed["content"] = [_as_text(part) for part in content]
    return changed


def _call_id(name: object) -> str:
    return f"call_{name}"


def _as_text(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") == "refusal":
        return {"type": "text", "text": part.get("refusal", "")}
    return part

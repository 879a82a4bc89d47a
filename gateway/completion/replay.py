"""Replay of a stored response as the event stream that a client requested: same envelope, the text in one piece."""

from __future__ import annotations

from typing import Any, Final

from gateway.chat.json_members import encoded
from gateway.chat.operation import CHAT, COMPLETIONS, Operation
from gateway.completion.answer_json import decode_answer

_DONE: Final = b"data: [DONE]\n\n"
_NOT_IN_EVENTS: Final = frozenset({"object", "choices", "usage"})
_OF_FIRST_EVENT: Final = frozenset({"index", "message", "text", "logprobs"})


def as_event_stream(answer: bytes, *, include_usage: bool, operation: Operation = CHAT) -> bytes:
    """Return the events of a whole JSON completion: each choice's content and finish reason, then `[DONE]`.

    Raises:
        msgspec.DecodeError: `answer` is no JSON.
        KeyError: `answer` is no completion.
        TypeError: `answer` is no completion.
    """
    completion: dict[str, Any] = decode_answer(answer)
    common = {key: value for key, value in completion.items() if key not in _NOT_IN_EVENTS}
    is_text = operation is COMPLETIONS
    common["object"] = "text_completion" if is_text else "chat.completion.chunk"
    if include_usage:
        common["usage"] = None
    choices = enumerate(completion["choices"])
    events_of = _text_events if is_text else _choice_events
    events = [{**common, "choices": [part]} for number, parts in choices for part in events_of(number, parts)]
    if include_usage:
        events.append({**common, "choices": [], "usage": completion.get("usage")})
    return b"".join(b"data: %b\n\n" % encoded(event) for event in events) + _DONE


def _choice_events(number: int, choice: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the message of a choice, then its finish reason with any further fields."""
    message: dict[str, Any] = choice["message"]
    delta = {key: value for key, value in message.items() if key != "content" or value is not None}
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
    index = choice.get("index", number)
    ended = {key: value for key, value in choice.items() if key not in _OF_FIRST_EVENT}
    first = {"index": index, "delta": delta, "logprobs": choice.get("logprobs"), "finish_reason": None}
    return [first, {"index": index, "delta": {}, **ended}]


def _text_events(number: int, choice: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the text of a choice, then its finish reason with any further fields."""
    index = choice.get("index", number)
    ended = {key: value for key, value in choice.items() if key not in _OF_FIRST_EVENT}
    first = {"index": index, "text": choice["text"], "logprobs": choice.get("logprobs"), "finish_reason": None}
    return [first, {"index": index, "text": "", "logprobs": None, **ended}]

"""Replay of a stored response as the event stream that a client requested: same envelope, the text in one piece."""

from __future__ import annotations

from typing import Any, Final

import msgspec

_DONE: Final = b"data: [DONE]\n\n"
_NOT_IN_EVENTS: Final = frozenset({"object", "choices", "usage"})
_OF_FIRST_EVENT: Final = frozenset({"index", "message", "logprobs"})


def as_event_stream(answer: bytes, *, include_usage: bool) -> bytes:
    """Return the events of a whole JSON completion: each choice's message and finish reason, then `[DONE]`.

    Raises:
        msgspec.DecodeError: `answer` is no JSON.
        KeyError: `answer` is no completion.
        TypeError: `answer` is no completion.
    """
    completion: dict[str, Any] = msgspec.json.decode(answer)
    common = {key: value for key, value in completion.items() if key not in _NOT_IN_EVENTS}
    common["object"] = "chat.completion.chunk"
    if include_usage:
        common["usage"] = None
    choices = enumerate(completion["choices"])
    events = [{**common, "choices": [part]} for number, parts in choices for part in _choice_events(number, parts)]
    if include_usage:
        events.append({**common, "choices": [], "usage": completion.get("usage")})
    return b"".join(b"data: %b\n\n" % msgspec.json.encode(event) for event in events) + _DONE


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

"""From the events of a finished stream to the whole completion that they tell: stored once, served both ways."""

from __future__ import annotations

from typing import Any, Final

import msgspec

_ONLY_IN_EVENTS: Final = frozenset({"choices", "object", "usage"})
_ENDED: Final = ("stop", "length", "tool_calls")
"""Why a choice of an answer worth keeping ended; an aborted or filtered one is nobody else's answer."""
_TEXTS: Final = ("content", "refusal", "reasoning_content", "reasoning")
_decode: Final = msgspec.json.Decoder().decode


def completion_of_stream(stream: bytes) -> bytes | None:
    """The completion as JSON, or None when the stream is not whole: no `[DONE]`, a choice that did not end by itself,
    an error event, or anything that is no chat completion."""
    try:
        completion = _assemble(stream)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError, IndexError):
        return None  # whatever it is, it is not an answer to give again
    return None if completion is None else msgspec.json.encode(completion)


def is_whole(completion: bytes) -> bool:
    """Whether a plain JSON answer is a completion in which every choice has ended by itself."""
    try:
        choices = _decode(completion)["choices"]
        return bool(choices) and all(choice["finish_reason"] in _ENDED and "message" in choice for choice in choices)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return False


def _assemble(stream: bytes) -> dict[str, Any] | None:
    events = [line[5:].strip() for line in stream.splitlines() if line.startswith(b"data:")]
    if not events or events.pop() != b"[DONE]":
        return None
    common: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    usage: Any = None
    for data in events:
        event: dict[str, Any] = _decode(data)
        if "error" in event:
            return None
        common = common or {name: value for name, value in event.items() if name not in _ONLY_IN_EVENTS}
        usage = event.get("usage") or usage
        for piece in event["choices"]:
            _add(choices.setdefault(piece["index"], _blank(piece["index"])), piece)
    if not choices or any(choice["finish_reason"] not in _ENDED for choice in choices.values()):
        return None
    ordered = [choices[index] for index in sorted(choices)]
    whole = {**common, "object": "chat.completion", "choices": ordered}
    return whole if usage is None else {**whole, "usage": usage}


def _blank(index: int) -> dict[str, Any]:
    return {"index": index, "message": {"role": "assistant", "content": None}, "logprobs": None, "finish_reason": None}


def _add(choice: dict[str, Any], piece: dict[str, Any]) -> None:
    delta: dict[str, Any] = piece.get("delta") or {}
    message = choice["message"]
    for name in _TEXTS:
        if delta.get(name) is not None:
            message[name] = (message.get(name) or "") + delta[name]
    for call in delta.get("tool_calls") or ():
        _add_call(message.setdefault("tool_calls", []), call)
    logprobs = piece.get("logprobs")
    if logprobs:
        kept = choice["logprobs"] = choice["logprobs"] or {}
        for name, values in logprobs.items():
            if values:
                kept[name] = [*(kept.get(name) or ()), *values]
    choice["finish_reason"] = piece.get("finish_reason") or choice["finish_reason"]


def _add_call(calls: list[dict[str, Any]], call: dict[str, Any]) -> None:
    """A call begins with its id and name; its arguments come piece by piece."""
    index = call["index"]
    while len(calls) <= index:
        calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    known, told = calls[index], call.get("function") or {}
    known["id"] = call.get("id") or known["id"]
    known["type"] = call.get("type") or known["type"]
    known["function"]["name"] += told.get("name") or ""
    known["function"]["arguments"] += told.get("arguments") or ""

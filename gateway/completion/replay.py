"""Replay of a stored response: with an id of its own, and as the event stream that a client requested."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from gateway.chat.json_members import encoded
from gateway.chat.operation import CHAT, COMPLETIONS, Operation
from gateway.chat.schema import CONTENT_BLOCKS, OUTPUT_ITEMS
from gateway.completion.answer_json import decode_answer

_ID_MEMBER: Final = re.compile(rb'"id": ?"(?:chat)?cmpl-[A-Za-z0-9._-]{1,128}"')
_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_DONE: Final = b"data: [DONE]\n\n"
_NOT_IN_EVENTS: Final = frozenset({"object", "choices", "usage"})
_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_details")
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


def reissued(answer: bytes, *, serial: str, created: int) -> bytes:
    """Return a stored completion with an id and a time of its own; all else stays as it was written.

    Args:
        answer: A whole JSON completion. What has no id, or is no strict JSON, is returned unchanged.
        serial: The part of the id that is unique, behind the prefix that tells the kind of answer.
        created: Seconds since 1970.
    """
    try:
        members = _decode_members(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return answer
    known = members.get("id")
    if known is None:
        return answer
    prefix = b"cmpl-" if bytes(known).startswith(b'"cmpl-') else b"chatcmpl-"
    members["id"] = msgspec.Raw(b'"%b%b"' % (prefix, serial.encode("ascii")))
    members["created"] = msgspec.Raw(b"%d" % created)
    return msgspec.json.encode(members)


def id_member(events: bytes) -> bytes | None:
    """Return the member `id` of a stream's first event as it is written; None where it has none."""
    found = _ID_MEMBER.search(events)
    return None if found is None else found[0]


def _choice_events(number: int, choice: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the reasoning of a choice, its message, then its finish reason with any further fields.

    Many clients read either reasoning or content of an event. Reasoning of which the message has native parts stays
    beside these.
    """
    message: dict[str, Any] = choice["message"]
    delta = {"role": message.get("role", "assistant"), "content": message.get("content"), **message}
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
    index = choice.get("index", number)
    ended = {key: value for key, value in choice.items() if key not in _OF_FIRST_EVENT}
    first = {"index": index, "delta": delta, "logprobs": choice.get("logprobs"), "finish_reason": None}
    events = [first, {"index": index, "delta": {}, **ended}]
    reasoning = {name: delta.pop(name) for name in _REASONING if delta.get(name)} if _is_to_part(delta) else {}
    if reasoning:
        opening = {"role": delta.pop("role"), "content": "", **reasoning}
        events.insert(0, {"index": index, "delta": opening, "logprobs": None, "finish_reason": None})
    return events


def _is_to_part(delta: dict[str, Any]) -> bool:
    """Return whether reasoning and answer go into events of their own."""
    return not (CONTENT_BLOCKS in delta or OUTPUT_ITEMS in delta)


def _text_events(number: int, choice: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the text of a choice, then its finish reason with any further fields."""
    index = choice.get("index", number)
    ended = {key: value for key, value in choice.items() if key not in _OF_FIRST_EVENT}
    first = {"index": index, "text": choice["text"], "logprobs": choice.get("logprobs"), "finish_reason": None}
    return [first, {"index": index, "text": "", "logprobs": None, **ended}]

"""Assembly of a finished stream's events into the whole completion: stored once, served both ways.

Nothing is lost: rules of form cover unknown fields, too. Text of a delta is joined, lists grow, objects are merged,
and of anything else the last value counts. Where these rules are ambiguous, there is no completion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from gateway.chat.json_members import encoded
from gateway.chat.operation import CHAT, COMPLETIONS, Operation
from gateway.completion.answer_end import AnswerEnd, is_too_detailed
from gateway.completion.answer_json import decode_answer
from gateway.completion.merging import CannotMerge, Merged, index_of
from gateway.completion.stated_errors import ERROR_EVENT
from gateway.completion.stream_outcome import DONE, end_of_stream
from gateway.upstreams.http1.sse import HEARTBEATS, STRAY, SseDecoder, SseError, SseEvent

_ONLY_IN_EVENTS: Final = frozenset({"choices", "object", "usage", "obfuscation"})
_FIRST_WINS: Final = ("id", "created", "model")
"""Keys that are one for all events; the first non-empty value counts, since some servers begin with empty ones."""
_NO_TEXT_BESIDE: Final = ("tool_calls", "function_call", "refusal", "audio")
"""Keys beside which empty content is null, as in a plain answer."""


class Assembled(msgspec.Struct, frozen=True):
    """An assembled stream."""

    end: AnswerEnd
    completion: bytes | None
    """Completion as JSON; None when the stream is incomplete, or cannot be assembled without loss."""


def assembled(stream: bytes, operation: Operation = CHAT) -> Assembled:
    """Put a stream together. Linear in its length; decodes every event, so long ones belong on a thread."""
    end, whole = AnswerEnd(), _TextCompletion() if operation is COMPLETIONS else _ChatCompletion()
    try:
        for event in _events(stream):
            if event.data.strip() == DONE and event.event == "message":
                end.has_done = True
                continue
            if event.event == STRAY or is_too_detailed(event.data):
                raise CannotMerge("too much in one event, or something outside of all events")
            if not event.data.strip() and event.event != ERROR_EVENT:
                continue
            if event.event in HEARTBEATS:
                continue
            document = decode_answer(event.data)
            end.see(document, event.event)
            if not _is_heartbeat(document):
                whole.add(document, event.event)
        completion = encoded(whole.finished()) if end.is_complete and not end.is_coarse else None
    except (CannotMerge, SseError, TypeError, AttributeError, RecursionError, ValueError, msgspec.DecodeError):
        return Assembled(end_of_stream(stream), None)
    return Assembled(end, completion)


def completion_of_stream(stream: bytes, operation: Operation = CHAT) -> bytes | None:
    """Return the completion as JSON; None for a stream that must not be stored.

    That is one that is incomplete, has a choice that did not end by itself, or is no answer to the operation.
    """
    found = assembled(stream, operation)
    return found.completion if found.end.is_lasting else None


def _events(stream: bytes) -> Iterator[SseEvent]:
    """Yield the events, most of which are one line each."""
    stream = stream.replace(b"\r\n", b"\n")
    if b"\r" in stream:
        yield from SseDecoder(len(stream), shows_strays=True).feed(stream + b"\n\n")
        return
    for part in stream.split(b"\n\n"):
        if part.startswith(b"data: ") and b"\n" not in part:
            yield SseEvent(part[6:])
        elif part:
            yield from SseDecoder(len(part), shows_strays=True).feed(part + b"\n\n")


def _is_heartbeat(document: Any) -> bool:
    return isinstance(document, dict) and "choices" not in document and document.get("type") in HEARTBEATS


class _Completion:
    """State of a completion while its events arrive."""

    __slots__ = ("_common", "_first", "_usage")

    def __init__(self) -> None:
        self._common = Merged(is_text=False)
        self._first: dict[str, Any] = {}
        self._usage: Any = None

    def add(self, event: Any, name: str) -> None:
        """Add one event.

        Raises:
            CannotMerge: It is no event of a chat completion.
        """
        if not isinstance(event, dict) or (name != "message" and "choices" not in event):
            raise CannotMerge(name)
        choices = event.get("choices")
        if not isinstance(choices, list | None):
            raise CannotMerge("choices")
        self._usage = event.get("usage") or self._usage
        for field, value in event.items():
            if field in _FIRST_WINS:
                self._first[field] = self._first.get(field) or value
            elif field in _ONLY_IN_EVENTS:
                continue
            elif isinstance(value, list):
                self._common.add_latest(field, value)
            else:
                self._common.add({field: value})
        for choice in choices or ():
            self._add_choice(choice)

    def finished(self) -> dict[str, Any]:
        """Return the completion in the form of a plain answer."""
        raise NotImplementedError

    def _add_choice(self, piece: Any) -> None:
        """Add a piece of one choice."""
        raise NotImplementedError

    def _around(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the whole answer with these choices."""
        common = {**self._first, **self._common.finished()}
        holders = [*choices, common.get("x_groq") or {}]
        usage = self._usage or next((holder["usage"] for holder in holders if holder.get("usage")), None)
        return {**common, "object": kind, "choices": choices, "usage": usage}


class _ChatCompletion(_Completion):
    """State of a chat completion."""

    __slots__ = ("_choices",)

    def __init__(self) -> None:
        super().__init__()
        self._choices: dict[int, tuple[Merged, Merged]] = {}

    def finished(self) -> dict[str, Any]:
        choices = [_choice(number, *self._choices[number]) for number in sorted(self._choices)]
        return self._around("chat.completion", choices)

    def _add_choice(self, piece: Any) -> None:
        if not isinstance(piece, dict) or piece.get("message") or piece.get("text"):
            raise CannotMerge("a choice without a delta")
        number = index_of(piece)
        known = self._choices.get(number)
        if known is None:
            known = self._choices[number] = Merged(is_text=True), Merged(is_text=False)
        message, others = known
        message.add(piece.get("delta") or {})
        others.add({name: value for name, value in piece.items() if name not in ("delta", "index")})


class _TextCompletion(_Completion):
    """State of a text completion; the lists of its log-probabilities grow."""

    __slots__ = ("_choices",)

    def __init__(self) -> None:
        super().__init__()
        self._choices: dict[int, tuple[list[str], Merged]] = {}

    def finished(self) -> dict[str, Any]:
        choices = [
            {"index": number, "text": "".join(texts), "logprobs": None, "finish_reason": None, **others.finished()}
            for number, (texts, others) in sorted(self._choices.items())
        ]
        return self._around("text_completion", choices)

    def _add_choice(self, piece: Any) -> None:
        text = piece.get("text") if isinstance(piece, dict) else None
        if not isinstance(text, str | None) or not isinstance(piece, dict) or piece.get("delta"):
            raise CannotMerge("a choice without text")
        number = index_of(piece)
        texts, others = self._choices.setdefault(number, ([], Merged(is_text=False)))
        texts.append(text or "")
        others.add({name: value for name, value in piece.items() if name not in ("text", "index")})


def _choice(number: int, message: Merged, others: Merged) -> dict[str, Any]:
    assembled = {"role": "assistant", "content": None, **message.finished()}
    if assembled.get("refusal") == "":
        assembled["refusal"] = None
    if not assembled.get("tool_calls"):
        assembled.pop("tool_calls", None)
    else:
        assembled["tool_calls"] = _calls(assembled["tool_calls"])
    if assembled["content"] == "" and any(assembled.get(name) for name in _NO_TEXT_BESIDE):
        assembled["content"] = None
    return {"index": number, "message": assembled, "logprobs": None, "finish_reason": None, **others.finished()}


def _calls(calls: list[Any]) -> list[dict[str, Any]]:
    """Return tool calls in the form of a plain answer: without the index that located their pieces."""
    ids = [call.get("id") for call in calls if call.get("id")]
    if len(set(ids)) != len(ids):
        raise CannotMerge("two tool calls with one id")
    found = []
    for call in calls:
        if "index" not in call and not call.get("id"):
            raise CannotMerge("a piece of an unknown tool call")
        function = {"name": "", "arguments": "", **call.get("function", {})}
        others = {name: value for name, value in call.items() if name not in ("index", "function")}
        found.append({"id": "", "type": "function", **others, "function": function})
    return found

"""Answers as bytes: events of a stream and plain bodies, in OpenAI's shapes.

An event is put together from parts encoded once a request, so that a token costs one small JSON string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from engine.frontend.text.choice import Choice, Delta, Finish, TokenEntry
from engine.frontend.tools.call_scanner import CallDelta

DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode

TokenBytes = Callable[[int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerIdentity:
    """Fields that all events of one answer share."""

    id: str
    created: int
    """Unix time in seconds."""
    model: str
    include_usage: bool
    token_bytes: TokenBytes
    """Bytes of a token, for log probabilities; special tokens have bytes too."""
    shows_stop: bool = False
    """True if each choice ends with `stop_reason`: the stop string that ended it, or null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Tokens of one request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int | None = None
    """Part of the completion's tokens; None for models that do not reason."""
    predicted_tokens: tuple[int, int] | None = None
    """Accepted and rejected draft tokens from the request's prediction; None without one."""

    def as_json(self) -> dict[str, Any]:
        """Return OpenAI's `usage`."""
        usage: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }
        details: dict[str, int] = {}
        if self.reasoning_tokens is not None:
            details["reasoning_tokens"] = self.reasoning_tokens
        if self.predicted_tokens is not None:
            accepted, rejected = self.predicted_tokens
            details |= {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected}
        if details:
            usage["completion_tokens_details"] = details
        return usage


class Wire(Protocol):
    """The shape of one endpoint's answers. `extra` is a JSON object's members, or None."""

    def opening(self, index: int, *, has_text: bool = True) -> bytes:
        """Return the event ahead of a choice's first text or tool call; may be empty."""

    def delta(self, index: int, delta: Delta) -> bytes:
        """Return an event with text."""

    def finish(self, index: int, finish: Finish, extra: dict[str, Any] | None, *, matched: str | None = None) -> bytes:
        """Return a choice's last event; `matched` is the stop string that ended it."""

    def show_usage(self, usage: TokenUsage) -> None:
        """Put the usage so far into the events from here on."""

    def usage(self, usage: TokenUsage, extra: dict[str, Any] | None) -> bytes:
        """Return the event with the usage."""

    def body(self, answers: Sequence[CollectedChoice], usage: TokenUsage, extra: dict[str, Any] | None) -> bytes:
        """Return the body of a plain answer."""


@dataclass(slots=True)
class CollectedChoice:
    """A choice collected for a plain body."""

    choice: Choice
    texts: list[str]
    entries: list[TokenEntry]
    calls: list[CallDelta] = field(default_factory=list)
    reasonings: list[str] = field(default_factory=list)
    reasoning_entries: list[TokenEntry] = field(default_factory=list)

    def add(self, delta: Delta) -> None:
        """Add new output."""
        self.texts.append(delta.text)
        self.calls.extend(delta.calls)
        self.entries.extend(delta.entries)
        self.reasonings.append(delta.reasoning)
        self.reasoning_entries.extend(delta.reasoning_entries)

    def message(self) -> dict[str, Any]:
        """Return the assistant's message in OpenAI's form; without content when there are only calls.

        Reasoning has DeepSeek's member `reasoning_content`.
        """
        text, calls, reasoning = "".join(self.texts), _joined_calls(self.calls), "".join(self.reasonings)
        message: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text, "refusal": None}
        if reasoning:
            message["reasoning_content"] = reasoning
        return message | {"tool_calls": calls} if calls else message


class _EventWire:
    """Base of the two endpoints' wire formats."""

    def __init__(self, identity: AnswerIdentity, event_kind: str, body_kind: str) -> None:
        self._token_bytes = identity.token_bytes
        self._shows_stop = identity.shows_stop
        self._members = {
            "id": identity.id,
            "object": body_kind,
            "created": identity.created,
            "model": identity.model,
        }
        self._head = b"data: " + _encode(self._members | {"object": event_kind})[:-1] + b',"choices":'
        self._tail = b',"usage":null}\n\n' if identity.include_usage else b"}\n\n"

    def show_usage(self, usage: TokenUsage) -> None:
        """Put the usage so far into the events from here on."""
        self._tail = b"".join((b',"usage":', _encode(usage.as_json()), b"}\n\n"))

    def usage(self, usage: TokenUsage, extra: dict[str, Any] | None) -> bytes:
        """Return the event without choices that has the usage."""
        return _with_members(b"".join((self._head, b'[],"usage":', _encode(usage.as_json()), b"}\n\n")), extra)

    def _event(self, index: int, content: bytes, logprobs: bytes, finish: bytes) -> bytes:
        """Return an event of one choice; `content` is the member that holds its text."""
        head, tail = self._head, self._tail
        return b'%b[{"index":%d,%b,"logprobs":%b,"finish_reason":%b}]%b' % (
            head,
            index,
            content,
            logprobs,
            finish,
            tail,
        )

    def _end(self, finish: Finish, matched: str | None) -> bytes:
        """Return the finish reason, and behind it the member with the stop string where the request wants it."""
        reason = _encode(finish)
        return b'%b,"stop_reason":%b' % (reason, _encode(matched)) if self._shows_stop else reason

    def _ended(self, choice: Choice) -> dict[str, Any]:
        """Return the members of a plain body's choice that tell how it ended."""
        stop = {"stop_reason": choice.matched_stop} if self._shows_stop else {}
        return {"finish_reason": choice.finish, **stop}

    def _body(self, choices: list[dict[str, Any]], usage: TokenUsage, extra: dict[str, Any] | None) -> bytes:
        return _encode({**self._members, "choices": choices, "usage": usage.as_json(), **(extra or {})})


class ChatWire(_EventWire):
    """`chat.completion.chunk` events and `chat.completion` bodies."""

    def __init__(self, identity: AnswerIdentity) -> None:
        super().__init__(identity, "chat.completion.chunk", "chat.completion")

    def opening(self, index: int, *, has_text: bool = True) -> bytes:
        """Return the delta with the role; its content is null if tool calls come first."""
        content = b'""' if has_text else b"null"
        return self._event(index, b'"delta":{"role":"assistant","content":%b}' % content, b"null", b"null")

    def delta(self, index: int, delta: Delta) -> bytes:
        """Return a delta with reasoning, one with content, then one for each piece of a call, where there are such."""
        events = []
        if delta.reasoning or delta.reasoning_entries:
            logprobs = self._all_logprobs((), delta.reasoning_entries) if delta.reasoning_entries else None
            content = b'"delta":{"reasoning_content":%b}' % _encode(delta.reasoning)
            events.append(self._event(index, content, _encode(logprobs), b"null"))
        logprobs_json = _encode(self._logprobs(delta.entries)) if delta.entries else b"null"
        if delta.text or (not delta.calls and (delta.entries or not events)):
            events.append(self._event(index, b'"delta":{"content":%b}' % _encode(delta.text), logprobs_json, b"null"))
            logprobs_json = b"null"
        for call in delta.calls:
            piece = b'"delta":{"tool_calls":[%b]}' % _call_piece(call)
            events.append(self._event(index, piece, logprobs_json, b"null"))
            logprobs_json = b"null"
        return b"".join(events)

    def finish(self, index: int, finish: Finish, extra: dict[str, Any] | None, *, matched: str | None = None) -> bytes:
        """Return the empty delta with the finish reason."""
        return _with_members(self._event(index, b'"delta":{}', b"null", self._end(finish, matched)), extra)

    def body(self, answers: Sequence[CollectedChoice], usage: TokenUsage, extra: dict[str, Any] | None) -> bytes:
        """Return the plain `chat.completion`."""
        choices = [
            {
                "index": answer.choice.index,
                "message": answer.message(),
                "logprobs": self._all_logprobs(answer.entries, answer.reasoning_entries),
                **self._ended(answer.choice),
            }
            for answer in answers
        ]
        return self._body(choices, usage, extra)

    def _all_logprobs(
        self, entries: Sequence[TokenEntry], reasoning_entries: Sequence[TokenEntry]
    ) -> dict[str, Any] | None:
        """Return the log probabilities of the answer, and apart those of the reasoning; None if there are none."""
        if not entries and not reasoning_entries:
            return None
        found = self._logprobs(entries)
        return found | {"reasoning_content": self._tokens(reasoning_entries)} if reasoning_entries else found

    def _logprobs(self, entries: Iterable[TokenEntry]) -> dict[str, Any]:
        return {"content": self._tokens(entries), "refusal": None}

    def _tokens(self, entries: Iterable[TokenEntry]) -> list[dict[str, Any]]:
        found = []
        for entry in entries:
            top = [self._token(token_id, logprob) for token_id, logprob in entry.top]
            found.append({**self._token(entry.token_id, entry.logprob), "top_logprobs": top})
        return found

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        data = self._token_bytes(token_id)
        return {"token": data.decode(errors="replace"), "logprob": logprob, "bytes": list(data)}


class CompletionWire(_EventWire):
    """`text_completion` events and bodies."""

    def __init__(self, identity: AnswerIdentity) -> None:
        super().__init__(identity, "text_completion", "text_completion")

    def opening(self, index: int, *, has_text: bool = True) -> bytes:
        """Return nothing: completions have no role."""
        return b""

    def delta(self, index: int, delta: Delta) -> bytes:
        """Return an event with text."""
        logprobs = _encode(self._logprobs(delta.entries)) if delta.entries else b"null"
        return self._event(index, b'"text":%b' % _encode(delta.text), logprobs, b"null")

    def finish(self, index: int, finish: Finish, extra: dict[str, Any] | None, *, matched: str | None = None) -> bytes:
        """Return the event with no text and the finish reason."""
        return _with_members(self._event(index, b'"text":""', b"null", self._end(finish, matched)), extra)

    def body(self, answers: Sequence[CollectedChoice], usage: TokenUsage, extra: dict[str, Any] | None) -> bytes:
        """Return the plain `text_completion`."""
        choices = [
            {
                "index": answer.choice.index,
                "text": "".join(answer.texts),
                "logprobs": self._logprobs(answer.entries) if answer.entries else None,
                **self._ended(answer.choice),
            }
            for answer in answers
        ]
        return self._body(choices, usage, extra)

    def _logprobs(self, entries: Iterable[TokenEntry]) -> dict[str, Any]:
        shown = list(entries)
        return {
            "tokens": [self._text(entry.token_id) for entry in shown],
            "token_logprobs": [entry.logprob for entry in shown],
            "top_logprobs": [self._top(entry) for entry in shown],
            "text_offset": [entry.offset for entry in shown],
        }

    def _top(self, entry: TokenEntry) -> dict[str, float]:
        """Return the most likely tokens and the sampled one; of two with one text, the more likely."""
        found: dict[str, float] = {}
        for token_id, logprob in entry.top:
            found.setdefault(self._text(token_id), logprob)
        found.setdefault(self._text(entry.token_id), entry.logprob)
        return found

    def _text(self, token_id: int) -> str:
        r"""Return a token's text; of bytes that are no text, OpenAI's form of them, such as `bytes:\xf0\x9f`."""
        data = self._token_bytes(token_id)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _call_piece(call: CallDelta) -> bytes:
    """Return a member of a delta's `tool_calls`: the call's id and name, or more of its arguments."""
    function = {"arguments": call.arguments}
    if call.name is None:
        return _encode({"index": call.index, "function": function})
    return _encode(
        {"index": call.index, "id": call.id, "type": "function", "function": {"name": call.name, **function}}
    )


def _joined_calls(pieces: Iterable[CallDelta]) -> list[dict[str, Any]]:
    """Return the complete calls of a message."""
    calls: list[dict[str, Any]] = []
    for piece in pieces:
        if piece.name is not None:
            calls.append({"id": piece.id, "type": "function", "function": {"name": piece.name, "arguments": ""}})
        calls[piece.index]["function"]["arguments"] += piece.arguments
    return calls


def _with_members(event: bytes, extra: dict[str, Any] | None) -> bytes:
    """Return the event with more members at the end of its object."""
    return event if extra is None else event[: -len(b"}\n\n")] + b"," + _encode(extra)[1:] + b"\n\n"

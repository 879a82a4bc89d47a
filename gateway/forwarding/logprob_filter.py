"""Log-probabilities of an answer's tokens: read from the answer, and removed for clients that did not request them."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import expm1, log
from typing import Any, Final

import msgspec

from gateway.chat.json_members import encoded
from gateway.completion.answer_json import decode_answer
from gateway.completion.stated_errors import is_failed_reason
from gateway.upstreams.http1.sse import SseDecoder, SseError, encode_event
from routing_policies.quality.confidence import TokenOdds

_LOGPROBS: Final = b'"logprobs"'
_CONTINUED: Final = re.compile(rb"data:[^\n]*\ndata:")
"""Pattern of an event with several lines."""
_CERTAIN: Final = -1e-9
MAX_TOKENS: Final = 1024
"""Tokens of one event that are read."""
MAX_EVENT_BYTES: Final = 256 * 1024
"""Largest event of a stream that is read; a larger one has no log-probabilities of single tokens."""
_LOGPROB: Final = b'"logprob"'
_MAX_LOGPROBS: Final = 100_000
"""Log-probabilities of one answer beyond which none is read."""


class _Top(msgspec.Struct, frozen=True):
    logprob: msgspec.Raw


class _Token(msgspec.Struct, frozen=True):
    logprob: msgspec.Raw
    token: str = ""
    bytes: tuple[int, ...] | None = None
    top_logprobs: msgspec.Raw = msgspec.Raw(b"[]")


class _Logprobs(msgspec.Struct, frozen=True):
    content: tuple[_Token, ...] | None = None
    reasoning_content: Any = None
    """Tokens of the reasoning, where the server tells them apart."""


class _Text(msgspec.Struct, frozen=True):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(msgspec.Struct, frozen=True):
    logprobs: _Logprobs | None = None
    delta: _Text | None = None
    message: _Text | None = None
    finish_reason: str | None = None
    index: int = 0


class _Answer(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...] = ()


_decode: Final = msgspec.json.Decoder(_Answer).decode
_decode_top: Final = msgspec.json.Decoder(tuple[_Top, ...]).decode


def odds_of(answer: bytes, limit: int = MAX_TOKENS) -> tuple[list[TokenOdds], bool]:
    """Return up to `limit` tokens of one JSON answer or event, and whether it ends with its tokens.

    Other input has none, and reasoning does not count. Only the numbers of the returned tokens are converted.
    """
    odds, is_whole, _ = _tokens_of(answer, limit)
    return odds, is_whole


def _tokens_of(answer: bytes, limit: int) -> tuple[list[TokenOdds], bool, int]:
    """Return the odds of the answer's tokens, whether it ends with them, and the number of all, reasoning included."""
    if len(answer) > MAX_EVENT_BYTES and answer.count(_LOGPROB) > _MAX_LOGPROBS:
        return [], False, 0
    try:
        choices = [choice for choice in _decode(answer).choices if choice.index == 0]
        if not choices:
            return [], False, 0
        present = choices[0].logprobs or _Logprobs()
        tokens = _answer_tokens(present, choices[0].delta or choices[0].message)
        odds = [_odds(token) for token in tokens[:limit]]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return [], False, 0
    reason, apart = choices[0].finish_reason, present.reasoning_content
    num_tokens = len(present.content or ()) + (len(apart) if isinstance(apart, list) else 0)
    return odds, reason is not None and not is_failed_reason(reason), num_tokens


class LogprobReader:
    """Reader of a stream's log-probabilities: feed the pieces in order; `odds` grows."""

    __slots__ = ("_decoder", "is_whole", "num_tokens", "odds")

    def __init__(self) -> None:
        self.odds: list[TokenOdds] = []
        self.num_tokens = 0
        """Number of tokens so far, those of the reasoning included."""
        self.is_whole = False
        """True if the answer has given its finish reason."""
        self._decoder = SseDecoder(MAX_EVENT_BYTES)

    def feed(self, piece: bytes) -> None:
        """Feed one piece of the stream."""
        try:
            events = self._decoder.feed(piece)
        except SseError:  # an event so large has no odds of single tokens
            self._decoder = SseDecoder(MAX_EVENT_BYTES)
            return
        for event in events:
            odds, is_whole, num_tokens = _tokens_of(event.data, MAX_TOKENS)
            self.odds += odds
            self.num_tokens += num_tokens
            self.is_whole = self.is_whole or is_whole


def _answer_tokens(present: _Logprobs, text: _Text | None) -> tuple[_Token, ...]:
    """Return the tokens of the answer, which follow those of the reasoning where a server lists both together."""
    tokens = present.content or ()
    if text is None or present.reasoning_content is not None or not (text.reasoning_content or text.reasoning):
        return tokens
    num_left = len(text.content.encode()) if isinstance(text.content, str) else 0
    first = len(tokens)
    while first and (num_left := num_left - _num_bytes(tokens[first - 1])) >= 0:
        first -= 1
    return tokens[first:]


def _num_bytes(token: _Token) -> int:
    return len(token.token.encode() if token.bytes is None else token.bytes)


def _odds(token: _Token) -> TokenOdds:
    """Read the odds; without a second choice, the remaining probability counts as its own."""
    logprob = float(bytes(token.logprob))
    others = sorted((float(bytes(top.logprob)) for top in _decode_top(token.top_logprobs)), reverse=True)
    second = others[1] if len(others) > 1 else log(-expm1(min(logprob, _CERTAIN)))
    return TokenOdds(logprob, logprob - second)


def without_odds(answer: bytes) -> bytes:
    """Return one JSON answer with `"logprobs": null`, the default of the API; other input unchanged."""
    if _LOGPROBS not in answer:
        return answer
    try:
        document: Any = decode_answer(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return answer
    choices = document.get("choices") if isinstance(document, dict) else None
    if not isinstance(choices, list):
        return answer
    for choice in choices:
        if isinstance(choice, dict) and choice.get("logprobs") is not None:
            choice["logprobs"] = None
    return encoded(document)


def events_without_odds(events: bytes) -> bytes:
    """Return whole events of a stream with `"logprobs": null`, as they are without log-probabilities."""
    return edited_events(events, _LOGPROBS, without_odds)


def edited_events(events: bytes, mark: bytes, edit: Callable[[bytes], bytes]) -> bytes:
    """Return whole events of a stream, with `edit` made to the data of those that contain `mark`."""
    if mark not in events:
        return events
    if b"\r" in events or _CONTINUED.search(events) is not None:
        found = [(event, edit(event.data)) for event in SseDecoder(len(events)).feed(events)]
        return b"".join(encode_event(data, None if event.event == "message" else event.event) for event, data in found)
    return b"\n".join(
        [
            b"data: " + edit(line[5:].strip()) if line.startswith(b"data:") and mark in line else line
            for line in events.split(b"\n")
        ]
    )

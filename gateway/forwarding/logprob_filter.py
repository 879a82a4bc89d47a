"""Log-probabilities of an answer's tokens: read from the answer, and removed for clients that did not request them."""

from __future__ import annotations

import re
from math import expm1, log
from typing import Any, Final

import msgspec

from gateway.completion.stated_errors import is_failed_reason
from gateway.upstreams.http1.sse import SseDecoder, SseError, encode_event
from routing_policies.quality.confidence import TokenOdds

_LOGPROBS: Final = b'"logprobs"'
_CONTINUED: Final = re.compile(rb"data:[^\n]*\ndata:")
"""Pattern of an event with several lines."""
_CERTAIN: Final = -1e-9


class _Top(msgspec.Struct, frozen=True):
    logprob: float


class _Token(msgspec.Struct, frozen=True):
    logprob: float
    top_logprobs: tuple[_Top, ...] = ()


class _Logprobs(msgspec.Struct, frozen=True):
    content: tuple[_Token, ...] | None = None


class _Choice(msgspec.Struct, frozen=True):
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    index: int = 0


class _Answer(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...] = ()


_decode: Final = msgspec.json.Decoder(_Answer).decode


def odds_of(answer: bytes) -> tuple[list[TokenOdds], bool]:
    """Return the tokens of one JSON answer or event, and whether it ends with them; nothing for other input."""
    try:
        choices = [choice for choice in _decode(answer).choices if choice.index == 0]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [], False
    if not choices:
        return [], False
    present = choices[0].logprobs
    tokens = () if present is None or present.content is None else present.content
    reason = choices[0].finish_reason
    return [_odds(token) for token in tokens], reason is not None and not is_failed_reason(reason)


class LogprobReader:
    """Reader of a stream's log-probabilities: feed the pieces in order; `odds` grows."""

    __slots__ = ("_decoder", "is_whole", "odds")

    def __init__(self) -> None:
        self.odds: list[TokenOdds] = []
        self.is_whole = False
        """True if the answer has given its finish reason."""
        self._decoder = SseDecoder()

    def feed(self, piece: bytes) -> None:
        """Feed one piece of the stream."""
        try:
            events = self._decoder.feed(piece)
        except SseError:  # an event so large has no odds of single tokens
            self._decoder = SseDecoder()
            return
        for event in events:
            odds, is_whole = odds_of(event.data)
            self.odds += odds
            self.is_whole = self.is_whole or is_whole


def _odds(token: _Token) -> TokenOdds:
    """Read the odds; without a second choice, the remaining probability counts as its own."""
    others = sorted((top.logprob for top in token.top_logprobs), reverse=True)
    second = others[1] if len(others) > 1 else log(-expm1(min(token.logprob, _CERTAIN)))
    return TokenOdds(token.logprob, token.logprob - second)


def without_odds(answer: bytes) -> bytes:
    """Return one JSON answer with `"logprobs": null`, the default of the API; other input unchanged."""
    if _LOGPROBS not in answer:
        return answer
    try:
        document: Any = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return answer
    choices = document.get("choices") if isinstance(document, dict) else None
    if not isinstance(choices, list):
        return answer
    for choice in choices:
        if isinstance(choice, dict) and choice.get("logprobs") is not None:
            choice["logprobs"] = None
    return msgspec.json.encode(document)


def events_without_odds(events: bytes) -> bytes:
    """Return whole events of a stream with `"logprobs": null`, as they are without log-probabilities."""
    if _LOGPROBS not in events:
        return events
    if b"\r" in events or _CONTINUED.search(events) is not None:
        found = [(event, without_odds(event.data)) for event in SseDecoder(len(events)).feed(events)]
        return b"".join(encode_event(data, None if event.event == "message" else event.event) for event, data in found)
    return b"\n".join(
        [
            b"data: " + without_odds(line[5:].strip()) if line.startswith(b"data:") and _LOGPROBS in line else line
            for line in events.split(b"\n")
        ]
    )

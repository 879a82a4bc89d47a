"""How likely each token of an answer was, read from the answer; and the answer without that, for who did not ask."""

from __future__ import annotations

from math import expm1, log
from typing import Any, Final

import msgspec

from routing_policies.quality.confidence import TokenOdds

_LOGPROBS: Final = b'"logprobs"'
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
    """The tokens of one JSON answer or event, and whether it ends with them; nothing from what is no such thing."""
    try:
        choices = [choice for choice in _decode(answer).choices if choice.index == 0]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [], False
    if not choices:
        return [], False
    told = choices[0].logprobs
    tokens = () if told is None or told.content is None else told.content
    return [_odds(token) for token in tokens], choices[0].finish_reason is not None


class OddsReader:
    """Feed the stream's pieces in order; `odds` grows."""

    __slots__ = ("_line", "is_whole", "odds")

    def __init__(self) -> None:
        self.odds: list[TokenOdds] = []
        self.is_whole = False
        """The answer has said why it ended."""
        self._line: list[bytes] = []
        """The pieces of one that is not whole yet."""

    def feed(self, piece: bytes) -> None:
        """Bytes that came."""
        if b"\n" not in piece:
            self._line.append(piece)
            return
        *lines, rest = b"".join([*self._line, piece]).split(b"\n")
        self._line = [rest]
        for line in lines:
            if line.startswith(b"data:"):
                odds, is_whole = odds_of(line[5:])
                self.odds += odds
                self.is_whole = self.is_whole or is_whole


def _odds(token: _Token) -> TokenOdds:
    """Without a second choice the rest of the chance is taken for its."""
    others = sorted((top.logprob for top in token.top_logprobs), reverse=True)
    second = others[1] if len(others) > 1 else log(-expm1(min(token.logprob, _CERTAIN)))
    return TokenOdds(token.logprob, token.logprob - second)


def without_odds(answer: bytes) -> bytes:
    """One JSON answer with `"logprobs": null`, as it is when nobody asks; anything else as it is."""
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
    """The same for whole events of a stream."""
    if _LOGPROBS not in events:
        return events
    return b"\n".join(
        [
            b"data: " + without_odds(line[5:].strip()) if line.startswith(b"data:") and _LOGPROBS in line else line
            for line in events.split(b"\n")
        ]
    )

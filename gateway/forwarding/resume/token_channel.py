"""TokenChannel: a stream's tokens, which its engine reports between the events, and the events that they cover.

An engine with an order for it writes a comment `: penstock-tokens 0 17 4,1 stop 2` behind the events of one write: the
tokens of the choice with index 0, and the last one of the choice with index 1, which has ended. One comment has all
choices of these events, so it is there for all of them or for none. The channel takes the comments out, and passes
events on only once the comment behind them is there. So whatever the client has received, the gateway knows its tokens
exactly, wherever the stream breaks.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

_OF_CHOICE: Final = rb"[0-9]+(?: (?:stop|length))?(?: [0-9]+)*"
_REPORT: Final = re.compile(rb"(?<![^\n]): penstock-tokens (%b(?:,%b)*)\n\n" % (_OF_CHOICE, _OF_CHOICE))
_ENDS: Final = ("stop", "length")
_EVENT: Final = b"data: "
_DONE_EVENT: Final = b"data: [DONE]\n\n"
_HANDED_OVER: Final = b": penstock-handed-over\n\n"
_MAX_HELD_BYTES: Final = 1024 * 1024


class PassedChoice(msgspec.Struct):
    """What was passed on of one choice, at this engine and earlier ones."""

    token_ids: list[int]
    finish: str | None = None
    """Reason for which the model ended it; None for one that goes on, or that its own text ended."""


class _Identity(msgspec.Struct, frozen=True):
    id: str
    created: int


_identity_of: Final = msgspec.json.Decoder(_Identity).decode


class TokenChannel:
    """Translator of a reported stream into the client's; it implements `BodyTranslator`."""

    __slots__ = ("_held", "choices", "created", "digest", "id", "is_handed_over", "is_open")

    def __init__(self, digest: str, begun: TokenChannel | None = None) -> None:
        """Read a stream; `begun` is the one that it continues."""
        self.digest = digest
        """Digest of model and prompt, as the engine states it."""
        self.choices: dict[int, PassedChoice] = {}
        """Choices of which events were passed on, by index."""
        self.id: str | None = None
        """Id of the answer; None before its first event."""
        self.created = 0
        """Unix time of the answer, in seconds."""
        self.is_open = True
        """False once events were passed on whose tokens are unknown: the stream cannot be continued."""
        self.is_handed_over = False
        """True if the engine drains and left the rest of the stream to another one."""
        self._held = b""
        if begun is not None:
            self.id, self.created = begun.id, begun.created
            self.choices = {i: PassedChoice([*one.token_ids], one.finish) for i, one in begun.choices.items()}

    @property
    def num_tokens(self) -> int:
        """Number of tokens that were passed on."""
        return sum(len(choice.token_ids) for choice in self.choices.values())

    @property
    def has_begun(self) -> bool:
        """True if events were passed on whose tokens are known."""
        return bool(self.choices)

    @property
    def is_resumable(self) -> bool:
        """True if the tokens of all that was passed on are known, and its identity."""
        return self.is_open and (not self.choices or self.id is not None)

    def feed(self, piece: bytes) -> bytes:
        """Return the events up to the last report."""
        data = self._held + piece if self._held else piece
        if not self.is_open:
            return data
        if data.endswith(_DONE_EVENT):
            self._held = b""
            return _REPORT.sub(b"", data)
        end = 0
        for report in _REPORT.finditer(data):
            for of_choice in report[1].decode("ascii").split(","):
                self._note(of_choice.split(" "))
            end = report.end()
        self._held = data[end:]
        if len(self._held) > _MAX_HELD_BYTES:
            self.is_open, end, self._held = False, len(data), b""
        whole = data[:end]
        if self.id is None and whole:
            self._identify(whole)
        return _REPORT.sub(b"", whole)

    def _note(self, words: list[str]) -> None:
        """Note a choice's index, the reason for its end if there is one, and its further tokens."""
        index, *rest = words
        choice = self.choices.setdefault(int(index), PassedChoice([]))
        has_end = bool(rest) and rest[0] in _ENDS
        choice.finish = rest[0] if has_end else None
        choice.token_ids += map(int, rest[has_end:])

    def finish(self) -> bytes:
        """Return what may be passed on at the end of the body: nothing, as a whole stream ends with its end mark."""
        self.is_handed_over = self._held.endswith(_HANDED_OVER)
        return b""

    def _identify(self, events: bytes) -> None:
        first = events[: events.find(b"\n\n")].removeprefix(_EVENT)
        try:
            identity = _identity_of(first)
        except msgspec.MsgspecError:
            self.is_open = False
        else:
            self.id, self.created = identity.id, identity.created

"""Preambles: a beginning that stands before many different questions says nothing about any of them, and is taken off.

Attackers put a fixed text before their prompts to be given the larger model. Only what is followed, again and again, by
openings that training knew is taken for such a text. A text may itself begin as training's prompts do, and so do most
prompts: there only a beginning that is followed by many different openings, and by hardly anything else, is taken off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

MAX_WORDS: Final = 32
"""Most words of a preamble; a longer one is outside the text's end that features look at, or is a prompt of its own."""
MIN_QUESTIONS: Final = 6
"""Different questions with known openings that must have followed."""
MIN_OPENINGS: Final = 10
"""After a known beginning so many different known openings must have: "From this text, …" is followed by fewer."""
MIN_SHARE: Final = 1 / 3
"""Share of the texts with a known beginning in which a known opening must have followed.

After a preamble it follows in about as many as have one without it, in the middle of a sentence in far fewer.
"""
MAX_ENTRIES: Final = 16_384
OPENING_WORDS: Final = 2

_WORD: Final = re.compile(r"\S+")
_MAX_CHARS: Final = 400
_QUESTION_CHARS: Final = 48
"""Number of leading characters that distinguish one question from another."""


def opening_of(words: Sequence[str]) -> str:
    """Return how a text begins, punctuation and figures apart."""
    return " ".join([_plain(word) for word in words[:OPENING_WORDS]])


def _plain(word: str) -> str:
    return word.strip(".,:;!?\"'()").lower()


class _Followed(NamedTuple):
    """Counts of what came after one beginning."""

    by: frozenset[int] = frozenset()
    """Different questions, or openings; no more than are needed."""
    num_known: int = 0
    num_texts: int = 0

    def and_then(self, what: int | None) -> _Followed:
        """Return the counts with one more text; None where no known opening followed."""
        if what is None:
            return _Followed(self.by, self.num_known, self.num_texts + 1)
        by = self.by if len(self.by) >= MIN_OPENINGS else self.by | {what}
        return _Followed(by, self.num_known + 1, self.num_texts + 1)

    def is_enough(self, *, is_familiar: bool) -> bool:
        """Return whether the beginning, which may be a familiar one, is a preamble."""
        if is_familiar:
            return len(self.by) >= MIN_OPENINGS and self.num_known >= MIN_SHARE * self.num_texts
        return len(self.by) >= MIN_QUESTIONS


class PreambleMemory:
    """Remembers what stood before known openings lately; bounded, the longest unseen is forgotten first."""

    __slots__ = ("_known", "_max_entries", "_seen")

    def __init__(self, known: Iterable[str], *, max_entries: int = MAX_ENTRIES) -> None:
        self._known = frozenset(known)
        self._max_entries = max_entries
        self._seen: dict[int, _Followed] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def strip(self, text: str) -> str:
        """Return the text without its preamble, if it has one, and note how it begins."""
        spans = [found.span() for found in _WORD.finditer(text, 0, _MAX_CHARS)][: MAX_WORDS + OPENING_WORDS]
        num_places = len(spans) - OPENING_WORDS + 1
        if num_places <= 1:
            return text
        words = [_plain(text[start:end]) for start, end in spans]
        openings = [" ".join(words[number : number + OPENING_WORDS]) for number in range(num_places)]
        is_familiar = openings[0] in self._known
        cut = 0
        for number in range(1, num_places):
            start = spans[number][0]
            follows = None
            if openings[number] in self._known:
                follows = hash(openings[number] if is_familiar else text[start : start + _QUESTION_CHARS])
            found = self._note(hash(text[: spans[number - 1][1]]), follows)
            if found is not None and found.is_enough(is_familiar=is_familiar):
                cut = start
        return text[cut:]

    def _note(self, beginning: int, follows: int | None) -> _Followed | None:
        """Return what followed it so far; None where no known opening ever did."""
        before = self._seen.pop(beginning, None)
        if before is None and follows is None:
            return None
        found = self._seen[beginning] = (before or _Followed()).and_then(follows)
        if len(self._seen) > self._max_entries:
            del self._seen[next(iter(self._seen))]
        return found

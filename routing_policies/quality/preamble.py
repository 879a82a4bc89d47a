"""Preambles: beginnings that precede many different questions, which are removed before a prediction.

Attackers put a fixed text before their prompts to obtain the larger model. A beginning counts as such a text only if
openings of the training follow it again and again. A text may itself begin as training's prompts do, and most prompts
do. Such a beginning is removed only if different openings, and hardly anything else, follow it. Few texts are enough:
until a preamble is known, it moves predictions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

MAX_WORDS: Final = 32
"""Maximum number of words of a preamble; a longer one is outside the part of the text that features read."""
MIN_QUESTIONS: Final = 2
"""Minimum number of different questions with known openings that must have followed an unfamiliar beginning."""
MIN_OPENINGS: Final = 3
"""Minimum number of different known openings that must have followed a known beginning."""
MIN_SHARE: Final = 1 / 3
"""Minimum share of the texts with a known beginning in which a known opening must follow.

After a preamble, it follows about as often as it begins texts without one. In mid-sentence, it follows far less often.
"""
MAX_ENTRIES: Final = 16_384
OPENING_WORDS: Final = 2

_WORD: Final = re.compile(r"\S+")
_MAX_CHARS: Final = 400
_QUESTION_CHARS: Final = 48
"""Number of leading characters that distinguish one question from another."""


def opening_of(words: Sequence[str]) -> str:
    """Return the opening words of a text, without punctuation and figures."""
    return " ".join([_plain(word) for word in words[:OPENING_WORDS]])


def _plain(word: str) -> str:
    return word.strip(".,:;!?\"'()").lower()


class _Followed(NamedTuple):
    """Counts of the questions or openings that followed one beginning."""

    by: frozenset[int] = frozenset()
    """Different questions or openings, at most as many as the test needs."""
    num_known: int = 0
    num_texts: int = 0

    def and_then(self, what: int | None) -> _Followed:
        """Return the counts with one more text; None where no known opening followed."""
        if what is None:
            return _Followed(self.by, self.num_known, self.num_texts + 1)
        by = self.by if len(self.by) >= MIN_OPENINGS else self.by | {what}
        return _Followed(by, self.num_known + 1, self.num_texts + 1)

    def is_enough(self, *, is_familiar: bool) -> bool:
        """Return whether the beginning is a preamble; `is_familiar`: training prompts begin like it."""
        if is_familiar:
            return len(self.by) >= MIN_OPENINGS and self.num_known >= MIN_SHARE * self.num_texts
        return len(self.by) >= MIN_QUESTIONS


class PreambleMemory:
    """Bounded memory of beginnings that recently preceded known openings; the least recently seen is dropped first."""

    __slots__ = ("_known", "_max_entries", "_seen")

    def __init__(self, known: Iterable[str], *, max_entries: int = MAX_ENTRIES) -> None:
        self._known = frozenset(known)
        self._max_entries = max_entries
        self._seen: dict[int, _Followed] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def strip(self, text: str, sender: str = "") -> str:
        """Return the text without its preamble, if it has one, and record its beginning.

        Args:
            text: The text.
            sender: Only texts of the same sender count.
        """
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
            found = self._note(hash((sender, text[: spans[number - 1][1]])), follows)
            if found is not None and found.is_enough(is_familiar=is_familiar):
                cut = start
        return text[cut:]

    def _note(self, beginning: int, follows: int | None) -> _Followed | None:
        """Record what follows a beginning; return its counts, or None if no known opening ever followed."""
        before = self._seen.pop(beginning, None)
        if before is None and follows is None:
            return None
        found = self._seen[beginning] = (before or _Followed()).and_then(follows)
        if len(self._seen) > self._max_entries:
            del self._seen[next(iter(self._seen))]
        return found

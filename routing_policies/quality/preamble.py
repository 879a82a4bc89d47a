"""Preambles: a beginning that stands before many different questions says nothing about any of them, and is taken off.

Attackers put a fixed text before their prompts to be given the larger model. What training knew to open a prompt is
never taken for such a text: only what is followed, again and again, by openings that training knew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

MAX_WORDS: Final = 32
"""Of a preamble; a longer one is outside the text's end that features look at, or is a prompt of its own."""
MIN_QUESTIONS: Final = 6
"""Different questions with known openings that must have followed."""
MAX_ENTRIES: Final = 16_384
OPENING_WORDS: Final = 2

_WORD: Final = re.compile(r"\S+")
_MAX_CHARS: Final = 400
_QUESTION_CHARS: Final = 48
"""By so many of its characters a question is told from others."""


def opening_of(words: Sequence[str]) -> str:
    """How a text begins, punctuation and figures apart."""
    return " ".join([word.strip(".,:;!?\"'()").lower() for word in words[:OPENING_WORDS]])


class PreambleMemory:
    """What stood before known openings lately; bounded, the longest unseen is forgotten first."""

    __slots__ = ("_known", "_max_entries", "_seen")

    def __init__(self, known: Iterable[str], *, max_entries: int = MAX_ENTRIES) -> None:
        self._known = frozenset(known)
        self._max_entries = max_entries
        self._seen: dict[int, frozenset[int]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def strip(self, text: str) -> str:
        """The text without its preamble, if it has one; notes how this one begins."""
        spans = [found.span() for found in _WORD.finditer(text, 0, _MAX_CHARS)][: MAX_WORDS + OPENING_WORDS]
        words = [text[start:end] for start, end in spans]
        if len(words) <= OPENING_WORDS or opening_of(words) in self._known:
            return text
        cut = 0
        for number in range(1, len(words) - OPENING_WORDS + 1):
            is_known = opening_of(words[number : number + OPENING_WORDS]) in self._known
            start = spans[number][0]
            question = hash(text[start : start + _QUESTION_CHARS]) if is_known else None
            if self._note(hash(text[: spans[number - 1][1]]), question):
                cut = start
        return text[cut:]

    def _note(self, beginning: int, question: int | None) -> bool:
        """Whether this beginning is a preamble."""
        before = self._seen.pop(beginning, frozenset())
        if question is not None and len(before) < MIN_QUESTIONS:
            before |= {question}
        if before:
            self._seen[beginning] = before
            if len(self._seen) > self._max_entries:
                del self._seen[next(iter(self._seen))]
        return len(before) >= MIN_QUESTIONS

"""Denials: exceptions and restrictions, by a word, by two words together, or by how a word is built.

Lists of words end. Two rules hold for words in no list. Some words exclude what stands behind them (`other than`,
`far from`), and some beginnings and endings deny the rest of a word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gateway.cache.grammar.lexicon import EXCEPTIONS
from gateway.cache.grammar.word_lists import words_of

_EXCLUDING: Final = {
    "than": words_of("other rather otherwise else sooner less"),
    "from": words_of("apart aside away far exempt free freedom"),
    "of": words_of("lieu place stead short free clear rid bereft independent irrespective regardless wary opposite"),
    "for": words_of("save"),
    "to": words_of("opposed contrary averse"),
    "if": words_of("even"),
}
"""First words by second word; each pair names what a question leaves out."""
_MEASURING: Final = "how"
"""Word before these that makes them a distance: `how far from`."""
_BUILT: Final = re.compile(
    r"un(?!i|der|til|le)[a-z]{3,}(?:ed|able|ible|ing|en)|non(?!etheless)[a-z]{4,}|(?!unless|bless|regardless|nonethe|neverthe)[a-z]{3,}less"
)


def exception_of(word: str) -> str:
    """Return in which way a lower-case word narrows or excepts, by itself or as it is built; empty for none."""
    return EXCEPTIONS.get(word) or ("built" if _BUILT.fullmatch(word) else "")


def exceptions_in(lowered: Sequence[str]) -> list[str]:
    """Return in which ways two words together narrow or except."""
    found = []
    for at, (first, second) in enumerate(pairwise(lowered)):
        if second in _EXCLUDING and first in _EXCLUDING[second] and not (at and lowered[at - 1] == _MEASURING):
            found.append("even" if first == "even" else "but")
    return found

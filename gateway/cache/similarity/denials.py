"""Denials: exceptions and restrictions, by a word, by two words together, or by how a word is built.

Lists of words end. Two rules hold for words in no list. Some words exclude what stands behind them (`other than`,
`far from`), and some beginnings and endings deny the rest of a word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gateway.cache.grammar.word_lists import words_of
from gateway.cache.similarity.lexicon import EXCEPTIONS

_EXCLUDING: Final = {
    "than": words_of("other rather otherwise else sooner less"),
    "from": words_of("apart aside away far exempt free freedom"),
    "of": words_of("lieu place stead short free clear rid bereft independent irrespective regardless wary opposite"),
    "for": words_of("save"),
    "to": words_of("opposed contrary averse"),
}
"""First words by second word; each pair names what a question leaves out."""
_MEASURING: Final = "how"
"""Word before these that makes them a distance: `how far from`."""
_BUILT: Final = re.compile(
    r"un(?!i|der|til|le)[a-z]{3,}(?:ed|able|ible|ing|en)|non(?!etheless)[a-z]{4,}|(?!unless|bless|regardless|nonethe|neverthe)[a-z]{3,}less"
)


def is_exception(word: str) -> bool:
    """Return whether a lower-case word narrows or excepts: by itself, or by its beginning or ending."""
    return word in EXCEPTIONS or _BUILT.fullmatch(word) is not None


def num_excepted(lowered: Sequence[str]) -> int:
    """Return how often two words together leave something out."""
    found = 0
    for at, (first, second) in enumerate(pairwise(lowered)):
        if second in _EXCLUDING and first in _EXCLUDING[second]:
            found += not (at and lowered[at - 1] == _MEASURING)
    return found

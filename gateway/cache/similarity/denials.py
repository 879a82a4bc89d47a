"""Denials: what takes something out of a question, by a word, by two words together, or by how a word is built.

One text that denies or excepts more than another asks something else. Lists of words end; that some words of grammar
exclude what stands behind them (`other than`, `all but`, `far from`), and that some beginnings and endings deny the
rest of a word, holds for words in no list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gateway.cache.similarity.lexicon import NEGATIONS, words_of

EXCEPTING: Final = words_of("but only merely solely exclusively unless rarely seldom non excepting barring besides")
"""Alone they narrow what is asked, or turn it around."""
_TAKING: Final = {
    "than": words_of("other rather otherwise else sooner less"),
    "from": words_of("apart aside away far exempt free freedom"),
    "of": words_of("lieu place stead short free clear rid bereft independent irrespective regardless wary opposite"),
    "for": words_of("save"),
    "to": words_of("opposed contrary averse"),
}
"""By the second of two words, the first: together they say what is left out."""
_MEASURING: Final = "how"
"""Before them it is a distance: `how far from`."""
_BUILT: Final = re.compile(
    r"un(?!i|der|til|le)[a-z]{3,}(?:ed|able|ible|ing|en)|non[a-z]{4,}|(?!unless|bless|regardless|nonethe|neverthe)[a-z]{3,}less"
)
_MAYBE_BUILT: Final = ("un", "no", "ss")


def is_denial(word: str) -> bool:
    """Of a lower-case word."""
    return word in NEGATIONS or word.endswith("n't")


def is_exception(word: str) -> bool:
    """Of a lower-case word: by itself, or by its beginning or ending."""
    if word in EXCEPTING:
        return True
    return (word[:2] in _MAYBE_BUILT or word[-2:] in _MAYBE_BUILT) and _BUILT.fullmatch(word) is not None


def num_excepted(lowered: Sequence[str]) -> int:
    """How often two words together leave something out."""
    found = 0
    for at, (first, second) in enumerate(pairwise(lowered)):
        if second in _TAKING and first in _TAKING[second]:
            found += not (at and lowered[at - 1] == _MEASURING)
    return found

"""LetterCase: the units, acronyms and symbols of a text that are other ones in other letters: `kB`, `Mm`, `PIN`, `Co`.

Most capitals mean nothing: texts in lower case, titles, `KM` for `km`. A capital counts where both ways to write the
letters have a meaning of their own.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gateway.cache.grammar.lexicon import COMMON_WORDS, FUNCTION_WORDS, NEGATIONS
from gateway.cache.grammar.vocabulary import ranks
from gateway.cache.grammar.word_lists import ELEMENTS

_AMOUNT: Final = re.compile(
    r"\d\s?((?:[kKMGTP]i?)?[bB](?:ps|its?)?|[mM](?:W|V|A|J|Hz|Pa)h?|[kMGTmnµμp](?:m|g|s|N|eV|Wh)|Nm|[cC]al)(?![\w'])"
)
"""A unit behind a number."""
_ANYWHERE: Final = re.compile(r"\b(?:[kKMGT]i?[bB](?:ps|its?)?|[mM](?:W|V|A|J|Hz|Pa)h?)\b")
"""Units that are known as such without a number."""
_WORD: Final = re.compile(r"[^\W\d_]+(?:'s)?")
_ALSO_NAMES: Final = frozenset({"us", "it", "who", "no"})
"""Words of grammar that are a name in capitals."""
_MIN_ORDINARY: Final = 3
_MIN_TITLE: Final = 0.6
"""Share of words with a capital from which a text is a title."""
_FORMS: Final = ("s", "ed", "ing", "ly", "er")
"""Endings of words; an acronym in lower case has none of them."""


class LetterCase(msgspec.Struct, frozen=True, gc=False):
    """Words and units of one text whose letter case counts."""

    units: frozenset[str] = frozenset()
    """Symbols of units; `K` of kilobytes is written `k`."""
    words: frozenset[str] = frozenset()
    """Its words but the first; empty where capitals mean nothing, as in a title."""

    def has_other_unit(self, other: LetterCase) -> bool:
        """Return whether a unit stands in the other text in letters that are another one."""
        lowered = {unit.lower() for unit in other.units - self.units}
        return any(unit.lower() in lowered for unit in self.units - other.units)

    def has_other_word(self, other: LetterCase) -> bool:
        """Return whether an acronym stands in the other text as an ordinary word or as a chemical symbol."""
        return _has_other_acronym(self.words, other.words) or _has_other_acronym(other.words, self.words)


def letter_case(text: str) -> LetterCase:
    """Return the units and words of a text in normal form, in their case; never raises."""
    if text.isupper():
        return LetterCase()
    is_lower = text.islower()
    words = _WORD.findall(text)
    found = [*_ANYWHERE.findall(text), *_AMOUNT.findall(text)]
    units = frozenset([_standard(unit) for unit in found if not (is_lower and "b" in unit)])
    if is_lower:
        return LetterCase(units)
    num_capitals = sum([word[0].isupper() for word in words])
    if num_capitals >= _MIN_TITLE * len(words):
        return LetterCase(units)
    return LetterCase(units, frozenset(words[1:]))


def _standard(unit: str) -> str:
    return "k" + unit[1:] if unit[0] == "K" else unit


def _has_other_acronym(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Return whether a word in capitals stands in the other text as an ordinary word or as a chemical symbol."""
    acronyms = [word for word in ours if len(word) > 1 and word.isupper() and word not in theirs]
    if not acronyms:
        return False
    return any(
        (word.lower() in ELEMENTS and word.capitalize() in theirs)
        or (word.lower() in theirs and _is_ordinary(word.lower()))
        for word in acronyms
    )


def _is_ordinary(word: str) -> bool:
    """Return whether a word in lower case is more than an acronym that was typed without capitals."""
    if word in FUNCTION_WORDS or word in COMMON_WORDS or word in NEGATIONS or len(word) < _MIN_ORDINARY:
        return word in _ALSO_NAMES  # all others are in capitals for emphasis
    known = ranks()
    root = word.removesuffix("s")
    return (root != word and root in known) or any(word + ending in known for ending in _FORMS)

"""Lexicon: the words for the comparison of two questions, read from `gateway/cache/data/english.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib.resources import files
from typing import Final

from gateway.cache.grammar.word_lists import words_of


def _groups(lines: Iterable[str]) -> dict[str, frozenset[int]]:
    """Return for each word the numbers of the lines that have it."""
    found: dict[str, frozenset[int]] = {}
    for number, line in enumerate(lines):
        for word in line.split():
            found[word] = found.get(word, frozenset()) | {number}
    return found


_TEXTS: Final[dict[str, str]] = tomllib.loads(files("gateway.cache").joinpath("data/english.toml").read_text("utf-8"))
FUNCTION_WORDS: Final = words_of(_TEXTS["function_words"])
COMMON_WORDS: Final = words_of(_TEXTS["common_words"])
NEGATIONS: Final = words_of(_TEXTS["negations"])
EXCEPTIONS: Final = {
    word: line.split()[0] for line in _TEXTS["exceptions"].strip().splitlines() for word in line.split()
}
"""In which way each word narrows or excepts, by the first word of its line."""
YES_OR_NO: Final = words_of(_TEXTS["yes_or_no"])
AMOUNTS: Final = words_of(_TEXTS["amounts"])
POINTING: Final = words_of(_TEXTS["pointing"])
GOING_ON: Final = words_of(_TEXTS["going_on"])
WORD_ENDINGS: Final = words_of(_TEXTS["word_endings"])
PERSON_ENDINGS: Final = words_of(_TEXTS["person_endings"])
ENGLISH: Final = words_of(_TEXTS["english"])
OTHER_LANGUAGES: Final = words_of(_TEXTS["other_languages"])
UNITS_AFTER_NUMBERS: Final = words_of(_TEXTS["units_after_numbers"])
UNITS: Final = {name: line.split()[0] for line in _TEXTS["units"].split(";") for name in line.split()}
"""Every name of a unit, and its first one."""
NUMBERS: Final = {word: line.split()[0] for line in _TEXTS["numbers"].split(";") for word in line.split()[1:]}
"""Number words and their values."""
SYNONYM_FORMS: Final = _groups(_TEXTS["same_meaning"].splitlines())
"""The numbers of the groups that a word belongs to; words of one group mean the same."""
_PAIRS: Final = [tuple(pair.split()) for pair in _TEXTS["opposites"].split(";")]
OPPOSITES: Final = frozenset(pair for one, other in _PAIRS for pair in ((one, other), (other, one)))
"""Pairs both ways round."""

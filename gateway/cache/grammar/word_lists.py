"""Word lists of grammar, read from `gateway/cache/data/grammar.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final


def words_of(text: str) -> frozenset[str]:
    """Return a list of words, written as text, as a set."""
    return frozenset(text.split())


def _classes(text: str) -> dict[str, str]:
    """Return for each word the first word of its line."""
    found: dict[str, str] = {}
    name = ""
    for line in text.strip().splitlines():
        name, *words = line.split()
        found |= {word.replace("_", " "): name for word in words}
    return found


def heads_of(text: str) -> dict[str, str]:
    """Return for each word the first of its group; groups are separated by semicolons."""
    return {word: group.split()[0] for group in text.split(";") for word in group.split()}


_TEXTS: Final[dict[str, str]] = tomllib.loads(files("gateway.cache").joinpath("data/grammar.toml").read_text("utf-8"))
CODE_WORDS: Final = words_of(_TEXTS["code_words"])
NAMED_PARTS: Final = words_of(_TEXTS["named_parts"])
KEYWORDS: Final = words_of(_TEXTS["keywords"])
MODALS: Final = _classes(_TEXTS["modals"])
"""Class of each modal; some are two words."""
TENSES: Final[Mapping[str, str]] = {
    word: tense for tense in ("present", "past", "future", "perfect") for word in _TEXTS[tense].split()
}
"""Tense of each helping verb; `perfect` only before a participle."""
PAST_FORMS: Final = words_of(_TEXTS["past_forms"])
PARTICIPLES: Final = words_of(_TEXTS["participles"])
QUANTITIES: Final = _classes(_TEXTS["quantities"])
HARMLESS_ADVERBS: Final = words_of(_TEXTS["harmless_adverbs"])
"""Adverbs that narrow no question with a question word when they stand before a verb."""
ORDINALS: Final = heads_of(_TEXTS["ordinals"])
_RELATIONS: Final = [heads_of(line) for line in _TEXTS["relations"].strip().splitlines()]
RELATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    word: tuple(groups.get(word, "") for groups in _RELATIONS) for line in _RELATIONS for word in line
}
"""For each relation the first word of its group in each line; empty in a line without it."""
PERSONS: Final = heads_of(_TEXTS["persons"])
HELPING_VERBS: Final = heads_of(_TEXTS["helping_verbs"])
CLASS_WORDS: Final = frozenset(
    word for words in (MODALS, TENSES, QUANTITIES, ORDINALS) for name in words for word in name.split()
) | {"going", "used"}
"""Words of any class; two texts that differ in these alone are about the same."""


def _phrases(text: str) -> tuple[str, ...]:
    """Return phrases that semicolons separate."""
    return tuple(" ".join(phrase.split()) for phrase in text.split(";"))


NOT_VOLATILE: Final = _phrases(_TEXTS["not_volatile"])
DATE_WORDS: Final = words_of(_TEXTS["date_words"])
NOW_WORDS: Final = words_of(_TEXTS["now_words"])
NOW_PHRASES: Final = _phrases(_TEXTS["now_phrases"])
NEAR_WORDS: Final = words_of(_TEXTS["near_words"])
SPANS: Final = words_of(_TEXTS["spans"])
MINE_WORDS: Final = words_of(_TEXTS["mine_words"])
MINE_PHRASES: Final = _phrases(_TEXTS["mine_phrases"])
MINE_CERTAIN: Final = _phrases(_TEXTS["mine_certain"])
GENERAL_BEHIND: Final = words_of(_TEXTS["general_behind"])
GENERAL_BEGINNINGS: Final = _phrases(_TEXTS["general_beginnings"])
BRITISH: Final[Mapping[str, str]] = dict(pair.split() for pair in _phrases(_TEXTS["british"]))
"""Beginnings of words in British spelling, and in American."""
JOINED: Final[Mapping[str, str]] = dict(pair.split() for pair in _phrases(_TEXTS["joined"]))
"""Other spellings of whole words."""
EVERYWHERE_IN_S: Final = words_of(_TEXTS["everywhere_in_s"])
"""Stems of verbs that end in `-ise` in American as well."""
MEASURES: Final[Mapping[str, str]] = dict(pair.split() for pair in _phrases(_TEXTS["measures"]))
"""Nouns that measure a thing, and the word behind `how` that asks for the same."""
MAKERS: Final[Mapping[str, str]] = dict(pair.split() for pair in _phrases(_TEXTS["makers"]))
"""Nouns for who made a thing, and what was done."""
GREETINGS: Final = _phrases(_TEXTS["greetings"])
OPENINGS: Final = tuple(_TEXTS["openings"].split())
"""Words that begin a question behind a greeting."""
REQUESTS: Final = _phrases(_TEXTS["requests"])
TASK_REQUESTS: Final = _phrases(_TEXTS["task_requests"])
TASKS: Final = tuple(_TEXTS["tasks"].split())
THANKS: Final = _phrases(_TEXTS["thanks"])
VERB_FORMS: Final = heads_of(_TEXTS["verb_forms"])
"""The present form of each past form of an irregular verb."""
VARIANTS: Final = words_of(_TEXTS["variants"])
"""Words behind a product's name or number that make another product of it."""
ROMAN: Final[Mapping[str, str]] = {
    numeral: str(value) for value, numeral in enumerate(_TEXTS["roman"].split(), start=1)
}
"""Value of each Roman numeral."""
ELEMENTS: Final = words_of(_TEXTS["elements"])
"""Symbols of two letters for chemical elements."""
COUNTED_IN_ROMAN: Final = words_of(_TEXTS["counted_in_roman"])
"""Words behind which a single capital letter is a numeral."""
BOUNDS: Final[Mapping[str, str]] = {
    phrase: bound
    for bound in ("more_than", "at_least", "less_than", "at_most", "exact_than")
    for phrase in _phrases(_TEXTS[bound])
}
"""Kind of bound by the words before a number."""
NUMBER_WORDS: Final = words_of(_TEXTS["number_words"])

"""The language of a text, recognized by its small words or its letters: guards are for each language its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gateway.cache.grammar.language_guards import GUARDS
from gateway.cache.grammar.lexicon import ENGLISH, OTHER_LANGUAGES


def is_english(words: Iterable[str]) -> bool:
    """Return whether hardly any lower-case word is another language's, or no more of them than are English.

    A few words without any small one among them are taken for English: names and codes are.
    """
    num_english = num_others = 0
    for word in words:
        if word in ENGLISH:
            num_english += 1
        elif word in OTHER_LANGUAGES or not word.isascii():
            num_others += 1
    return num_others < 2 or num_others <= num_english


ENGLISH_NAME: Final = "english"
UNGUARDED: Final = ""
"""Language of a text for which there are no guards."""
_SCRIPTS: Final = {
    "chinese": re.compile(r"[\u4e00-\u9fff]"),
    "japanese": re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]"),
    "russian": re.compile(r"[\u0400-\u04ff]"),
}
"""Letters of each language that its letters show, when more than half of a text is of them."""
_KANA: Final = re.compile(r"[\u3040-\u30ff]")
"""Letters that only Japanese has; it shares others with Chinese."""
_WORD: Final = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_MIN_SMALL: Final = 2
"""Small words that show a language; one will do in a text of few words."""
_FEW_WORDS: Final = 5


def language_of(words: Sequence[str]) -> str:
    """Return the language of lower-case words among those with guards, else UNGUARDED."""
    script = _script_of(words)
    if script is not None:
        return script
    num_english = sum(word in ENGLISH for word in words)
    if num_english and is_english(words):
        return ENGLISH_NAME
    found = _likeliest(words)
    if len(found) == 1 and found[0].num_small >= _least_small(words):
        return found[0].language
    return ENGLISH_NAME if is_english(words) else UNGUARDED


def languages_of(words: Sequence[str]) -> frozenset[str]:
    """Return each language that lower-case words may be of: a few words are often of several."""
    script = _script_of(words)
    if script is not None:
        return frozenset({script})
    least = max(_least_small(words), sum(word in ENGLISH for word in words))
    found = {guarded.language for guarded in _likeliest(words) if guarded.num_small >= least}
    return frozenset(found | {ENGLISH_NAME} if is_english(words) else found or {UNGUARDED})


def may_be_english(words: Sequence[str]) -> bool:
    """Return whether lower-case words are in Latin letters, and hardly any is another language's."""
    return _script_of(words) is None and is_english(words)


def _least_small(words: Sequence[str]) -> int:
    return 1 if len(words) <= _FEW_WORDS else _MIN_SMALL


class _Guarded(NamedTuple):
    language: str
    num_small: int


def _likeliest(words: Sequence[str]) -> list[_Guarded]:
    """Return the languages with guards that have the most of the words."""
    found = [
        _Guarded(name, sum(word in guards.small or word in guards.negations for word in words))
        for name, guards in GUARDS.items()
        if guards.small
    ]
    most = max(guarded.num_small for guarded in found)
    return [guarded for guarded in found if guarded.num_small == most]


def _script_of(words: Sequence[str]) -> str | None:
    """Return the language that the letters show, if they do."""
    text = "".join(words)
    if text.isascii():
        return None
    script = next((name for name, letters in _SCRIPTS.items() if len(letters.findall(text)) * 2 > len(text)), None)
    return "japanese" if script == "chinese" and _KANA.search(text) else script


def is_unguarded(text: str) -> bool:
    """Return whether a text is in a language without guards."""
    return language_of(_WORD.findall(text.lower())) == UNGUARDED

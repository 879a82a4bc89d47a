"""The language of a text, recognized by its small words or its letters: guards are for each language its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from gateway.cache.grammar.language_guards import GUARDS
from gateway.cache.similarity.lexicon import ENGLISH, OTHER_LANGUAGES


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
    text = "".join(words)
    if not text.isascii():
        script = next((name for name, letters in _SCRIPTS.items() if len(letters.findall(text)) * 2 > len(text)), None)
        if script is not None:
            return "japanese" if script == "chinese" and _KANA.search(text) else script
    if is_english(words):
        return ENGLISH_NAME
    counts = {name: sum(word in guards.small for word in words) for name, guards in GUARDS.items() if guards.small}
    best = max(counts, key=lambda name: counts[name])
    is_shown = counts[best] >= (1 if len(words) <= _FEW_WORDS else _MIN_SMALL)
    return best if is_shown and list(counts.values()).count(counts[best]) == 1 else UNGUARDED


def is_unguarded(text: str) -> bool:
    """Return whether a text is in a language without guards."""
    return language_of(_WORD.findall(text.lower())) == UNGUARDED

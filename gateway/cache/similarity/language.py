"""The language of a text, recognized by its small words: encoder, guards and calibration are for English only."""

from __future__ import annotations

from collections.abc import Iterable

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

"""Spelling: words that are one slip of the hand apart, and the word that was meant.

A slip exchanges two letters, leaves one out, adds one, or hits another key. The vocabulary decides which of two words
is misspelt; of two words that both are in it, neither is.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final, Literal

from gateway.cache.grammar.vocabulary import is_known, ranks

Slip = Literal["exchanged", "added", "beside", "other"]

MIN_LETTERS: Final = 3
_MIN_RARE: Final = 4
"""Letters of a misspelt word from which on it may be a rare word."""
_MIN_UNKNOWN: Final = 6
"""Letters of two words that may be one when neither is in the vocabulary, and of a sure slip."""
_FREQUENT: Final = 1200
"""Number of words that count as frequent."""
_MIN_REPLACED: Final = 5
_ENDING: Final = 3
"""Last letters in which another one makes another word, as in the names of substances."""
_VOWELS: Final = frozenset("aeiouy")
_PREFIXES: Final = frozenset("aeium")
"""Letters that begin another word when they are put before one: `atypical`, `methanol`."""
_ROWS: Final = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_word: Final = re.compile(r"(?<![\w'`$@#/\\.-])[A-Za-z]{3,}(?![\w'`(/\\@-]|\.\w)")


def _beside() -> dict[str, frozenset[str]]:
    """Return for each letter those of the keys around it."""
    places = {letter: (at, row) for row, letters in enumerate(_ROWS) for at, letter in enumerate(letters)}
    return {
        letter: frozenset(
            other
            for other, (there, below) in places.items()
            if (below == row and abs(there - at) == 1)
            or (below - row == 1 and at - there in (0, 1))
            or (row - below == 1 and there - at in (0, 1))
        )
        for letter, (at, row) in places.items()
    }


_BESIDE: Final = _beside()


def slip_between(one: str, other: str) -> Slip | None:
    """Return the one slip that makes a lower-case word of the other, or None."""
    if one == other or abs(len(one) - len(other)) > 1:
        return None
    shorter, longer = (one, other) if len(one) <= len(other) else (other, one)
    at = _first_difference(shorter, longer)
    if len(one) != len(other):
        return "added" if longer[at + 1 :] == shorter[at:] else None
    if one[at + 2 :] == other[at + 2 :] and one[at : at + 2] == other[at : at + 2][::-1]:
        return "exchanged"
    if one[at + 1 :] != other[at + 1 :]:
        return None
    return "beside" if other[at] in _BESIDE.get(one[at], ()) else "other"


def _first_difference(shorter: str, longer: str) -> int:
    for at, letter in enumerate(shorter):
        if letter != longer[at]:
            return at
    return len(shorter)


def are_one_word(one: str, other: str) -> bool:
    """Return whether one of two lower-case words is the other one, misspelt."""
    if min(len(one), len(other)) < MIN_LETTERS or not (one.isalpha() and other.isalpha()) or not ranks():
        return False
    slip = slip_between(one, other)
    if slip is None:
        return False
    knows_one, knows_other = is_known(one), is_known(other)
    if knows_one and knows_other:
        return False
    if not knows_one and not knows_other:
        is_long = min(len(one), len(other)) >= _MIN_UNKNOWN and one[0] == other[0]
        return is_long and slip in ("exchanged", "added") and not _is_plural(one, other)
    known, misspelt = (one, other) if knows_one else (other, one)
    return _is_likely(misspelt, known, slip)


def corrected(text: str) -> str:
    """Return a text in which sure slips are corrected: letters exchanged, doubled, or one of two left out.

    Rare words are in no vocabulary either, so any other slip is left for a comparison with another text.
    """
    meant = {word: _meant(word.lower()) for word in set(_word.findall(text)) if not is_known(word.lower())}
    if not any(meant.values()):
        return text
    return _word.sub(lambda found: with_case_of(found.group(), meant.get(found.group()) or found.group()), text)


def with_case_of(word: str, other: str) -> str:
    """Return the other word in capitals where this one is."""
    if word == other:
        return word
    if word.isupper():
        return other.upper()
    return other.capitalize() if word[0].isupper() else other


def _meant(word: str) -> str | None:
    """Return the most frequent word that a sure slip makes this one, or None."""
    if len(word) < _MIN_UNKNOWN:
        return None
    known = ranks()
    found = [other for other in known.keys() & _neighbours(word) if not _is_plural(word, other)]
    return min(found, key=known.__getitem__, default=None)


def _neighbours(word: str) -> list[str]:
    """Return what the sure slips make of a word; a list, because every rare word of every text comes here."""
    found = []
    for at, (left, right) in enumerate(pairwise(word)):
        if left == right:
            found.append(word[:at] + word[at + 1 :])
            continue
        found.append(f"{word[:at]}{right}{left}{word[at + 2 :]}")
        if at:
            found.append(word[: at + 1] + word[at:])
    return found


def _is_likely(misspelt: str, known: str, slip: Slip) -> bool:
    """Return whether a slip is likelier than another word that is in no vocabulary."""
    at = _first_difference(*sorted((misspelt, known), key=len))
    is_frequent = ranks().get(known, _FREQUENT) < _FREQUENT
    if not is_frequent and len(misspelt) < _MIN_RARE:
        return False
    if slip == "exchanged":
        return True
    if slip == "added":
        return len(known) > MIN_LETTERS and (at > 0 or max(known, misspelt, key=len)[0] not in _PREFIXES)
    if is_frequent and len(known) > MIN_LETTERS:
        return True
    if len(known) < _MIN_REPLACED or (at == 0 and slip != "beside"):
        return False
    is_vowel, was_vowel = misspelt[at] in _VOWELS, known[at] in _VOWELS
    return slip == "beside" or is_vowel != was_vowel or at < len(known) - _ENDING


def _is_plural(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    return longer in (shorter + "s", shorter + "d")

"""Stems: words without their endings, and words that are forms or misspellings of one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.cache.grammar.lexicon import PERSON_ENDINGS, SYNONYM_FORMS, WORD_ENDINGS

_MIN_ROOT: Final = 4
_MIN_MISSPELT: Final = 6


def stem_of(word: str) -> str:
    """Return a lower-case word without its endings, so that its forms meet; no word of any language."""
    if len(word) <= 3 or not word.isascii():
        return word
    word = _singular(word)
    if len(word) > 5 and word.endswith("ing"):
        word = _undoubled(word[:-3])
    elif len(word) > 4 and word.endswith("ed"):
        word = _undoubled(word[:-2])
    elif len(word) > 5 and word.endswith("ly"):
        word = word[:-2]
    if len(word) > 3 and word[-1] == "e":
        word = word[:-1]
    return word[:-1] + "i" if len(word) > 3 and word[-1] == "y" else word


def synonym_groups(word: str) -> frozenset[int]:
    """Return the groups of a lower-case word; a form that is in none has those of the words with its stem."""
    found = SYNONYM_FORMS.get(word)
    return _GROUPS_BY_STEM.get(stem_of(word), frozenset()) if found is None else found


def are_variants(one: str, other: str) -> bool:
    """Return whether two words are forms of one, or one of them is misspelt; not `employer` and `employee`."""
    if min(len(one), len(other)) < _MIN_ROOT or one[:3] != other[:3] or not (one.isalpha() and other.isalpha()):
        return False
    root = next((at for at, letter in enumerate(one) if other[at : at + 1] != letter), len(one))
    tails = one[root:], other[root:]
    if root >= _MIN_ROOT + all(tails) and all(tail in WORD_ENDINGS or not tail for tail in tails):
        return not all(tail in PERSON_ENDINGS for tail in tails)
    return min(len(one), len(other)) >= _MIN_MISSPELT and (one + other).isascii() and _is_slip(*tails)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _undoubled(word: str) -> str:
    """Return `stop` for `stopp`; `fall` and `miss` stay."""
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word


def _is_slip(one: str, other: str) -> bool:
    """Return whether two tails differ by a letter left out before the last one, or by two letters exchanged."""
    if one[1:] == other or one == other[1:]:
        return bool(one) and bool(other)
    return one[:2] == other[1::-1] and one[2:] == other[2:]


def _by_stem(groups: Mapping[str, frozenset[int]]) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for word, numbers in groups.items():
        found[stem_of(word)] = found.get(stem_of(word), frozenset()) | numbers
    return found


_GROUPS_BY_STEM: Final = _by_stem(SYNONYM_FORMS)

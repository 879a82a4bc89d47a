"""Comparison: two wordings side by side, with the words that only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.cache.similarity.lexicon import SAME_MEANING
from gateway.cache.similarity.stems import are_variants
from gateway.cache.similarity.wording import Word, Wording

_NONE: Final[frozenset[int]] = frozenset()


class Comparison(NamedTuple):
    """An asked text and the text of a cache entry."""

    asked: Wording
    kept: Wording
    shared: Sequence[Word]
    """Asked words that the other text has too."""
    only_asked: Sequence[Word]
    """Words that the other text has none for: no equal one, no other form, none that means the same."""
    only_kept: Sequence[Word]
    begin: int
    """Words that both begin with."""
    end: int
    """Words of the rest that both end with."""

    @classmethod
    def of(cls, asked: Wording, kept: Wording) -> Comparison:
        """Compare two wordings."""
        shared, only_asked = _split(asked.words, kept.words)
        only_kept = _split(kept.words, asked.words)[1][::-1]
        _pair_off(only_asked, only_kept)
        begin, end = _shared_ends(asked.words, kept.words)
        return cls(asked, kept, shared, only_asked, only_kept, begin, end)

    @property
    def sides(self) -> tuple[tuple[Wording, Sequence[Word], Wording], ...]:
        """Each text with the words that only it has, and the other text."""
        return (self.asked, self.only_asked, self.kept), (self.kept, self.only_kept, self.asked)


def _split(words: Sequence[Word], others: Sequence[Word]) -> tuple[list[Word], list[Word]]:
    """Return the words with an equal one on the other side, each standing for one, and the rest."""
    left = [word.stem for word in others]
    shared: list[Word] = []
    rest: list[Word] = []
    for word in words:
        if word.stem in left:
            left.remove(word.stem)
            shared.append(word)
        else:
            rest.append(word)
    return shared, rest


def _pair_off(only_asked: list[Word], only_kept: list[Word]) -> None:
    """Take out pairs that mean the same or are forms of one word."""
    for one in list(only_asked):
        other = next((other for other in only_kept if _is_like(one, other)), None)
        if other is not None:
            only_asked.remove(one)
            only_kept.remove(other)


def _is_like(one: Word, other: Word) -> bool:
    if not (one.rarity and other.rarity) or one.is_code or other.is_code:
        return False
    groups, others = SAME_MEANING.get(one.text, _NONE), SAME_MEANING.get(other.text, _NONE)
    return not groups.isdisjoint(others) or are_variants(one.text, other.text)


def _shared_ends(asked: Sequence[Word], kept: Sequence[Word]) -> tuple[int, int]:
    shorter = min(len(asked), len(kept))
    begin = 0
    while begin < shorter and asked[begin].stem == kept[begin].stem:
        begin += 1
    end = 0
    while end < shorter - begin and asked[-1 - end].stem == kept[-1 - end].stem:
        end += 1
    return begin, end

"""Comparison: two wordings side by side, with the words that only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from gateway.cache.grammar.language_guards import GUARDS, LanguageGuards
from gateway.cache.similarity.stems import are_variants, synonym_groups
from gateway.cache.similarity.wording import Word, Wording


class Comparison(NamedTuple):
    """A prompt's text and the text of a cache entry."""

    prompt: Wording
    cached: Wording
    shared: Sequence[Word]
    """Words of the prompt that the other text has too."""
    only_prompt: Sequence[Word]
    """Words that the other text has none for: no equal one, no other form, none that means the same."""
    only_cached: Sequence[Word]
    begin: int
    """Words that both begin with."""
    end: int
    """Words of the rest that both end with."""

    @classmethod
    def of(cls, prompt: Wording, cached: Wording) -> Comparison:
        """Compare two wordings."""
        shared, only_prompt = _split(prompt.words, cached.words)
        only_cached = _split(cached.words, prompt.words)[1][::-1]
        _pair_off(only_prompt, only_cached, GUARDS.get(prompt.language))
        begin, end = _shared_ends(prompt.words, cached.words)
        return cls(prompt, cached, shared, only_prompt, only_cached, begin, end)

    @property
    def sides(self) -> tuple[tuple[Wording, Sequence[Word], Wording], ...]:
        """Each text with the words that only it has, and the other text."""
        return (self.prompt, self.only_prompt, self.cached), (self.cached, self.only_cached, self.prompt)

    def share_a_neighbour(self, one: Word, other: Word) -> bool:
        """Return whether equal words stand before, or behind, a word of the prompt and one of the other text."""
        return not _neighbours(one, self.prompt.words).isdisjoint(_neighbours(other, self.cached.words))


def _neighbours(word: Word, words: Sequence[Word]) -> set[tuple[int, str]]:
    """Return what stands before (-1) and behind (1) a word."""
    pairs = list(pairwise(words))
    before = {(-1, first.stem) for first, second in pairs if second is word}
    return before | {(1, second.stem) for first, second in pairs if first is word}


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


def _pair_off(only_prompt: list[Word], only_cached: list[Word], guards: LanguageGuards | None) -> None:
    """Take out pairs that mean the same or are forms of one word."""
    for one in list(only_prompt):
        other = next((other for other in only_cached if _is_like(one, other, guards)), None)
        if other is not None:
            only_prompt.remove(one)
            only_cached.remove(other)


def _is_like(one: Word, other: Word, guards: LanguageGuards | None) -> bool:
    if not (one.rarity and other.rarity) or one.is_code or other.is_code:
        return False
    if guards is not None and guards.are_one_verb(one.text, other.text):
        return True
    return not synonym_groups(one.text).isdisjoint(synonym_groups(other.text)) or are_variants(one.text, other.text)


def _shared_ends(prompt: Sequence[Word], cached: Sequence[Word]) -> tuple[int, int]:
    shorter = min(len(prompt), len(cached))
    begin = 0
    while begin < shorter and prompt[begin].stem == cached[begin].stem:
        begin += 1
    end = 0
    while end < shorter - begin and prompt[-1 - end].stem == cached[-1 - end].stem:
        end += 1
    return begin, end

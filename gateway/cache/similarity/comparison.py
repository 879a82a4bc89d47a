"""Comparison: two wordings side by side, with the words that only one of them has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from gateway.cache.grammar.language_guards import GUARDS, LanguageGuards
from gateway.cache.grammar.stems import are_variants, synonym_groups
from gateway.cache.grammar.word_lists import words_of
from gateway.cache.similarity.wording import Word, Wording

_MIN_ALIKE = 3
"""Letters that forms of one word begin with, at least."""
_PARTICLES = words_of("on off up down in out")
"""Words that belong to the verb before them, also behind its object: `turn on the lamp`, `turn the lamp on`."""
MAX_OBJECT = 4
"""Words among which the verb of a particle is searched."""


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

    def contrasts_in_one_place(self, are_contrary: Callable[[str, str], bool]) -> bool:
        """Return whether contrary words, each in one text only, stand before or behind the same word."""
        theirs = {word.text for word in self.only_cached}
        contrary = [
            (one, other)
            for one in {word.text for word in self.only_prompt}
            for other in theirs
            if are_contrary(one, other)
        ]
        if not contrary:
            return False
        beside_ours, beside_theirs = _neighbours(self.prompt.words), _neighbours(self.cached.words)
        return any(not beside_ours[one].isdisjoint(beside_theirs[other]) for one, other in contrary)


def _neighbours(words: Sequence[Word]) -> dict[str, set[tuple[int, str]]]:
    """Return what stands before (-1) and behind (1) each word, and what may be the verb of a particle (-2)."""
    found: dict[str, set[tuple[int, str]]] = {word.text: set() for word in words}
    for first, second in pairwise(words):
        found[first.text].add((1, second.stem))
        found[second.text].add((-1, first.stem))
    for at, word in enumerate(words):
        if word.text in _PARTICLES:
            found[word.text].update((-2, verb.stem) for verb in words[max(0, at - MAX_OBJECT) : at] if verb.rarity)
    return found


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
    near: dict[str | int, list[str]] = {}
    for text in _distinct(only_cached):
        for key in _keys(text):
            near.setdefault(key, []).append(text)
    like = {
        text: {other for key in _keys(text) for other in near.get(key, ()) if _is_like(text, other, guards)}
        for text in _distinct(only_prompt)
    }
    for one in list(only_prompt):
        others = like.get(one.text)
        other = next((other for other in only_cached if other.text in others), None) if others else None
        if other is not None:
            only_prompt.remove(one)
            only_cached.remove(other)


def _distinct(words: Iterable[Word]) -> Iterable[str]:
    """Return words that may have other forms, each once."""
    return dict.fromkeys(word.text for word in words if word.rarity and not word.is_code)


def _keys(text: str) -> tuple[str | int, ...]:
    """Return a word's first letters and its synonym groups; words that are alike have one of them in common."""
    return text[:_MIN_ALIKE], *synonym_groups(text)


def _is_like(one: str, other: str, guards: LanguageGuards | None) -> bool:
    if guards is not None and guards.are_one_verb(one, other):
        return True
    return not synonym_groups(one).isdisjoint(synonym_groups(other)) or are_variants(one, other)


def _shared_ends(prompt: Sequence[Word], cached: Sequence[Word]) -> tuple[int, int]:
    shorter = min(len(prompt), len(cached))
    begin = 0
    while begin < shorter and prompt[begin].stem == cached[begin].stem:
        begin += 1
    end = 0
    while end < shorter - begin and prompt[-1 - end].stem == cached[-1 - end].stem:
        end += 1
    return begin, end

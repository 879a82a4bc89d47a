"""LanguageGuards: the words of a language that tie a question to a time or to its sender, and those that deny."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Final

import msgspec

from gateway.cache.grammar.word_lists import heads_of, words_of

_MIN_ROOT: Final = 3


class LanguageGuards(msgspec.Struct, frozen=True, gc=False):
    """The guards of one language."""

    small: frozenset[str]
    """Small words by which the language is recognized; empty where its letters show it."""
    free: frozenset[str]
    """Words of grammar that vary freely between wordings of one question."""
    same: Mapping[str, str]
    """The first word of the group in which words mean the same in a question."""
    infinitives: tuple[str, ...]
    endings: frozenset[str]
    """Endings of verbs that an infinitive may have in place of its own."""
    relations: Mapping[str, str]
    """The first word of the group of each word that leads to a place, or away from it."""
    whom: tuple[str, ...]
    """Question words for whom something is done to."""
    question_words: Mapping[str, str]
    """The first of the group of each question word that asks why, when, where, how or how much."""
    articles: frozenset[str]
    """Articles and pronouns, whose form depends on the thing beside them."""
    joints: frozenset[str]
    """Words between two things that may be named in either order."""
    narrowing: frozenset[str]
    """Words that restrict what stands behind them, such as `nur`."""
    negations: frozenset[str]
    now: frozenset[str]
    now_phrases: tuple[str, ...]
    mine: frozenset[str]
    mine_phrases: tuple[str, ...]
    not_volatile: tuple[str, ...]
    """Phrases that only look volatile."""

    def are_one_verb(self, one: str, other: str) -> bool:
        """Return whether one lower-case word is the infinitive of the other: `kündigen`, `kündige`."""
        return self._is_form(one, other) or self._is_form(other, one)

    def _is_form(self, infinitive: str, form: str) -> bool:
        for ending in self.infinitives:
            root = infinitive.removesuffix(ending)
            if (
                root != infinitive
                and len(root) >= _MIN_ROOT
                and form.startswith(root)
                and form[len(root) :] in self.endings
            ):
                return True
        return False

    def relate_otherwise(self, one: str, other: str) -> bool:
        """Return whether one lower-case word leads to a place and the other away from it: `a`, `de`."""
        groups = self.relations.get(one), self.relations.get(other)
        return None not in groups and groups[0] != groups[1]

    def has_whom(self, text: str) -> bool:
        """Return whether a question in lower-case words is about whom it is done to: `a quién venció`."""
        return any(f" {phrase} " in f" {text} " for phrase in self.whom)

    def kinds_in(self, text: str) -> set[str]:
        """Return what a question in lower-case words asks for; empty where it is yes or no, or what it is."""
        spaced = f" {text} "
        return {group for phrase, group in self.question_words.items() if f" {phrase} " in spaced}

    def num_negations(self, words: Sequence[str]) -> int:
        """Return how often lower-case words deny; of a word with an apostrophe each part counts."""
        return sum(part in self.negations for word in words for part in word.split("'"))

    def is_time_dependent(self, words: Sequence[str], text: str) -> bool:
        """Return whether the answer changes with the time."""
        return self._has(words, text, self.now, self.now_phrases)

    def is_personal(self, words: Sequence[str], text: str) -> bool:
        """Return whether the answer depends on who sends the question."""
        return self._has(words, text, self.mine, self.mine_phrases)

    def _has(self, words: Sequence[str], text: str, single: frozenset[str], phrases: tuple[str, ...]) -> bool:
        if not self.small:
            for phrase in self.not_volatile:
                text = text.replace(phrase, " ")
            return any(word in text for word in single)
        spaced = f" {' '.join(words)} ".replace("-", " ")
        for phrase in self.not_volatile:
            if f" {phrase} " in spaced:
                spaced = spaced.replace(f" {phrase} ", " , ")
                words = spaced.split()
        return not single.isdisjoint(words) or any(f" {phrase} " in spaced for phrase in phrases)


def _guards(texts: Mapping[str, str]) -> LanguageGuards:
    now, mine, harmless, whom = (
        tuple(" ".join(phrase.split()) for phrase in texts[name].split(";") if phrase.strip())
        for name in ("now_phrases", "mine_phrases", "not_volatile", "whom")
    )
    small, free, negations, single, own = (
        words_of(texts[name]) for name in ("small", "free", "negations", "now", "mine")
    )
    return LanguageGuards(
        small=small,
        free=free,
        same=heads_of(texts["same"]),
        infinitives=tuple(texts["infinitives"].split()),
        endings=words_of(texts["endings"]),
        relations=heads_of(texts["relations"]),
        whom=whom,
        question_words={word.replace("_", " "): group for word, group in heads_of(texts["question_words"]).items()},
        articles=words_of(texts["articles"]),
        joints=words_of(texts["joints"]),
        narrowing=words_of(texts["narrowing"]),
        negations=negations,
        now=single,
        now_phrases=now,
        mine=own,
        mine_phrases=mine,
        not_volatile=harmless,
    )


_TEXTS: Final[dict[str, dict[str, str]]] = tomllib.loads(
    files("gateway.cache").joinpath("data/guards.toml").read_text("utf-8")
)
GUARDS: Final[Mapping[str, LanguageGuards]] = {name: _guards(texts) for name, texts in _TEXTS.items()}
"""Guards by the language's English name; English has its own (`exact/volatile_text.py`)."""

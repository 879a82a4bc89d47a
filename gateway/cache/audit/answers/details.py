"""Details of an answer that turn its meaning while its words stay the same: code, duties, times, and order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.cache.grammar.code_tokens import code_tokens
from gateway.cache.grammar.language_guards import GUARDS
from gateway.cache.grammar.sentence_grammar import SentenceGrammar, sentence_grammar
from gateway.cache.grammar.word_lists import words_of
from gateway.cache.similarity.language import language_of
from gateway.cache.similarity.normal_form import normal_form

_FENCE: Final = re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE)
_LIST_MARK: Final = re.compile(r"^[ \t]*(?:[-*+>•]|#{1,6}|\d{1,3}[.)])[ \t]+", re.MULTILINE)
_TABLE_ROW: Final = re.compile(r"^[ \t]*\|.*$", re.MULTILINE)
_NOT_IN_TABLE: Final = re.compile(r"[|]|:?-{3,}:?")
_WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*").findall
_OPERATOR: Final = re.compile(r"(?<=[\w)\]] )([<>=+*/%^&|-]|[=!<>]=|\*\*|//|&&|\|\|)(?= [\w(\[])")
"""A sign with an operand on either side."""
_SUBSCRIPT: Final = re.compile(r"\w\[[^\]\s]*\]")
_ORDERING: Final = words_of("than then before after")
_DUTY: Final = "necessity"
_LEAVE: Final = frozenset({"permission", "ability", "advice"})
"""Classes of modals that are no duty."""
_MAX_CHARS: Final = 20_000
"""Characters that are read."""


class Details(msgspec.Struct, frozen=True):
    """The details of one answer."""

    signs: Counter[str]
    """Operators, flags and other code."""
    grammar: SentenceGrammar
    order: tuple[str, ...]
    """Its words, where one says that their order matters."""
    negations: Counter[str]
    """How often it denies, by its language; none in English, whose denials the statements have."""

    @classmethod
    def of(cls, text: str, tokens: Sequence[str]) -> Details:
        """Read the details of a text, whose tokens are given; never raises."""
        text = normal_form(_unformatted(text[:_MAX_CHARS]))
        words = _WORD(text.casefold())
        guards = GUARDS.get(language := language_of(words))
        signs = Counter(
            [*code_tokens(text).strict, *(found[1] for found in _OPERATOR.finditer(text)), *_SUBSCRIPT.findall(text)]
        )
        denied = 0
        if guards is not None:
            denied = guards.num_negations(words) if guards.small else sum(text.count(word) for word in guards.negations)
        return cls(
            signs=signs,
            grammar=sentence_grammar(words, ""),
            order=() if _ORDERING.isdisjoint(tokens) else tuple(tokens),
            negations=Counter({language: denied}) if denied else Counter(),
        )

    def conflict_with(self, other: Details) -> bool:
        """Return whether each text has a detail in place of one of the other."""
        if self.signs - other.signs and other.signs - self.signs:
            return True
        if self.negations != other.negations:
            return True
        if _are_turned(self.order, other.order):
            return True
        return _differ(self.grammar, other.grammar) or _differ(other.grammar, self.grammar)


def _unformatted(text: str) -> str:
    """Return the text without fences, list markers, table borders and backticks, which state nothing."""
    text = _TABLE_ROW.sub(lambda row: _NOT_IN_TABLE.sub(" ", row.group()), text)
    return _LIST_MARK.sub("", _FENCE.sub("", text)).replace("`", " ")


def _are_turned(one: Sequence[str], other: Sequence[str]) -> bool:
    return bool(one) and one != other and Counter(one) == Counter(other)


def _differ(one: SentenceGrammar, other: SentenceGrammar) -> bool:
    """Return whether one text alone has a duty where the other has leave, or the future where it has the past."""
    ours, theirs = one.modals - other.modals, other.modals - one.modals
    if _DUTY in ours and not _LEAVE.isdisjoint(theirs):
        return True
    return "future" in one.tenses - other.tenses and "past" in other.tenses - one.tenses

"""Wording: one text taken apart once, into what two texts are compared by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from gateway.cache.grammar.code_tokens import CodeTokens, code_tokens
from gateway.cache.grammar.language_guards import GUARDS
from gateway.cache.grammar.sentence_grammar import SentenceGrammar, sentence_grammar
from gateway.cache.grammar.spelling import are_one_word
from gateway.cache.grammar.vocabulary import is_known
from gateway.cache.similarity.denials import is_exception, num_excepted
from gateway.cache.similarity.language import ENGLISH_NAME, language_of
from gateway.cache.similarity.lexicon import (
    AMOUNTS,
    COMMON_WORDS,
    FUNCTION_WORDS,
    NEGATIONS,
    YES_OR_NO,
)
from gateway.cache.similarity.normal_form import normal_form
from gateway.cache.similarity.quantities import number_of, unit_of
from gateway.cache.similarity.stems import stem_of

MAX_WORDS: Final = 128
"""Maximum number of words that are read; `Wording.is_whole` is false for a longer text."""

_tokens: Final = re.compile(
    r"(?<=\d\s)[*/-](?=\s\d)|\d+(?:[.,:/-]\d+)*\w*|\.?[^\W\d_](?:[\w']|[.@](?=[^\W\d]))*(?:\+\+|#)?|[%$€£¥₹°]|[^\w\s'\".,;:!?()*`~|_-]"
).findall
_clauses: Final = re.compile(r"[.?!;:,](?=\s)|\s[-\u2013\u2014](?=\s)|[()\[\]{}\n]").split
_CONTRACTED: Final = re.compile(r"(?:n't|'(?:s|re|ve|ll|d|m))$")
_CODE: Final = re.compile(r"\w.*[\d_@+#.]|\d.*\w")
_QUESTION_WORDS: Final = {"whats": "what", "which": "what", "whom": "who", "whose": "who"} | {
    word: word for word in ("how", "what", "who", "when", "where", "why")
}
_QUESTION_SPAN: Final = 12
"""Number of first words among which the question word is searched."""
_MEMORY: Final = 16_384


class Word(NamedTuple):
    """One word of a text; `stem` is what makes two of them the same."""

    stem: str
    text: str
    """The word in lower case, without contractions."""
    rarity: float
    """0 grammar, 0.5 in every other question, 1 what the text is about."""
    is_name: bool = False
    is_code: bool = False
    """An identifier: letters with digits or signs inside."""


class Wording(msgspec.Struct, frozen=True, gc=False):
    """The contents of a text, for comparing it with another."""

    source: str
    """The text in normal form."""
    text: str
    """Its words in lower case, with one space between them."""
    words: tuple[Word, ...]
    numbers: tuple[str, ...]
    units: frozenset[str]
    num_negations: int
    num_exceptions: int
    """Number of times that it narrows the question or leaves something out: `only`, `other than`, `-less`."""
    question: str
    """The kind of answer that the question wants; empty when no word shows it."""
    clauses: tuple[frozenset[str], ...]
    """The stems of each sentence or clause, without grammar; empty where there is one only."""
    language: str
    """Its language by its words; UNGUARDED for one without guards."""
    code: CodeTokens
    """The parts in which each sign counts."""
    grammar: SentenceGrammar
    """Its modals, tenses and quantities."""
    is_whole: bool

    @classmethod
    def of(cls, text: str) -> Wording:
        """Take a text apart; never raises."""
        text = normal_form(text)
        tokens = _tokens(text)
        is_whole = len(tokens) <= MAX_WORDS
        reader = _Reader(tokens if is_whole else tokens[:MAX_WORDS])
        language = language_of([token for token in reader.lowered if token[0].isalpha()])
        reader.read(has_grammar=language == ENGLISH_NAME)
        guards = GUARDS.get(language)
        question = _question(reader.lowered)
        return cls(
            text,
            " ".join(reader.lowered),
            tuple(reader.words),
            tuple(reader.numbers),
            frozenset(reader.units),
            reader.num_negations + (0 if guards is None else guards.num_negations(reader.lowered)),
            reader.num_exceptions + num_excepted(reader.lowered),
            question,
            _stems_of_clauses(text),
            language,
            code_tokens(text),
            sentence_grammar(reader.lowered, question),
            is_whole,
        )


class _Known(NamedTuple):
    """The properties of a word wherever it stands."""

    word: Word
    unit: str | None
    is_negation: bool
    is_exception: bool
    number: tuple[str, str | None] | None
    """Value and unit."""


@lru_cache(maxsize=_MEMORY)
def _known(text: str) -> _Known:
    """Look up a lower-case token; few words make up most questions."""
    bare = _CONTRACTED.sub("", text) if "'" in text else text
    return _Known(
        _word_of(text, bare),
        unit_of(text, after_number=False),
        _is_negation(text),
        is_exception(text),
        number_of(text),
    )


def _is_negation(text: str) -> bool:
    """Return whether a lower-case word denies, misspelt or not."""
    if text in NEGATIONS or text.endswith("n't"):
        return True
    return text.isalpha() and not is_known(text) and any(are_one_word(text, negation) for negation in NEGATIONS)


def _word_of(text: str, bare: str) -> Word:
    if bare in FUNCTION_WORDS or not bare:
        return Word(bare or text, text, 0.0)
    if not text.isalpha() and _CODE.search(text):
        return Word(text, text, 1.0, is_code=True)
    stem = stem_of(bare)
    return Word(stem, bare, 0.5 if bare in COMMON_WORDS or stem in _COMMON_STEMS else 1.0)


_COMMON_STEMS: Final = frozenset(map(stem_of, COMMON_WORDS))


class _Reader:
    """A reader that goes through the tokens once."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        num_capitals = sum([token[0].isupper() for token in tokens])
        self._has_names = num_capitals * 5 <= len(tokens) * 3  # else it is a title, or all in capitals
        self.lowered = [token.lower() for token in tokens]
        self.words: list[Word] = []
        self.numbers: list[str] = []
        self.units: set[str] = set()
        self.num_negations = self.num_exceptions = 0

    def read(self, *, has_grammar: bool) -> None:
        """Fill the lists; without grammar every word carries weight, for its language is not known so well."""
        at = 0
        while at < len(self.lowered):
            known = _known(self.lowered[at])
            if known.number is None:
                self._word(at, known)
            else:
                at += self._number(at, *known.number)
            at += 1
        if not has_grammar:
            self.words = [word._replace(rarity=1.0) for word in self.words]

    def _number(self, at: int, value: str, unit: str | None) -> int:
        """Take a number and return how many further tokens name its unit."""
        following = self.lowered[at + 1] if at + 1 < len(self.lowered) else ""
        is_behind = unit is None and unit_of(following, after_number=True) is not None
        unit = unit_of(following, after_number=True) if is_behind else unit
        self.numbers.append(value)
        self.words.append(Word(value, self.lowered[at], 1.0))
        if unit is not None:
            self.units.add(unit)
            self.words.append(Word(unit, unit, 1.0))
        return int(is_behind)

    def _word(self, at: int, known: _Known) -> None:
        word = known.word
        has_capital = self._tokens[at][0].isupper()
        self.num_negations += known.is_negation
        self.num_exceptions += known.is_exception
        if known.unit is not None:
            self.units.add(known.unit)
        if has_capital and at and self._has_names and word.rarity:
            word = word._replace(is_name=True)
        self.words.append(word)


def _stems_of_clauses(text: str) -> tuple[frozenset[str], ...]:
    parts = [part for part in _clauses(text) if part and not part.isspace()]
    if len(parts) < 2:
        return ()
    known = [[_known(token.lower()).word for token in _tokens(part)] for part in parts]
    return tuple(frozenset([word.stem for word in words if word.rarity]) for words in known)


def _question(lowered: Sequence[str]) -> str:
    """Return the first question word; `how` with its amount."""
    if lowered and lowered[0] in YES_OR_NO:
        return "whether"
    for at, word in enumerate(lowered[:_QUESTION_SPAN]):
        kind = _QUESTION_WORDS.get(_CONTRACTED.sub("", word) if "'" in word else word)
        if kind == "how" and at + 1 < len(lowered) and lowered[at + 1] in AMOUNTS:
            return "how " + lowered[at + 1]
        if kind:
            return kind
    return ""

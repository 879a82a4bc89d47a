"""Wording: one text taken apart once, into what two texts are compared by."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from gateway.cache.grammar.code_tokens import CodeTokens, code_tokens
from gateway.cache.grammar.language_guards import GUARDS, LanguageGuards
from gateway.cache.grammar.letter_case import LetterCase, letter_case
from gateway.cache.grammar.lexicon import (
    AMOUNTS,
    COMMON_WORDS,
    FUNCTION_WORDS,
    NEGATIONS,
    YES_OR_NO,
)
from gateway.cache.grammar.sentence_grammar import SentenceGrammar, sentence_grammar
from gateway.cache.grammar.spelling import are_one_word
from gateway.cache.grammar.standard_form import standard_form
from gateway.cache.grammar.stems import stem_of
from gateway.cache.grammar.vocabulary import is_common, is_known
from gateway.cache.grammar.word_lists import COUNTED_IN_ROMAN, KEYWORDS, NAMED_PARTS, ROMAN, VERB_FORMS, words_of
from gateway.cache.similarity.denials import exception_of, exceptions_in
from gateway.cache.similarity.language import ENGLISH_NAME, UNGUARDED, language_of, languages_of
from gateway.cache.similarity.normal_form import normal_form
from gateway.cache.similarity.quantities import number_of, sum_of, unit_of

MAX_WORDS: Final = 128
"""Maximum number of words that are read; `Wording.is_whole` is false for a longer text."""

_tokens: Final = re.compile(
    r"(?<=\d\s)[*/|-](?=\s\d)|\d+(?:[.,:/-]\d+)*\w*|\.?[^\W\d_](?:[\w']|[.@](?=[^\W\d]))*(?:\+\+|#)?|[%$€£¥₹°]|[^\w\s'\".,;:!?()*`~|_-]"
).findall
_clauses: Final = re.compile(r"[.?!;:,](?=\s)|\s[-\u2013\u2014](?=\s)|[()\[\]{}\n]").split
_CONTRACTED: Final = re.compile(r"(?:n't|'(?:s|re|ve|ll|d|m))$")
_is_code: Final = re.compile(r"\W*\w.*[\d_@+#.]|\D*\d.*\w").match
_QUESTION_WORDS: Final = {"whats": "what", "which": "what", "whom": "who", "whose": "who"} | {
    word: word for word in ("how", "what", "who", "when", "where", "why")
}
_QUESTION_SPAN: Final = 12
"""Number of first words among which the question word is searched."""
_MEMORY: Final = 16_384
"""Number of common words whose properties are remembered."""
_NOUNS_IN_CAPITALS: Final = frozenset({"german"})
"""Languages that write every noun with a capital."""
_SAME_IN_LOWER_CASE: Final = frozenset({"US", "IT", "WHO", "D", "M", "S", "T"})
"""Names that are words of grammar in lower case."""
_BEFORE_MONTHS: Final = words_of("in of by since until till from to early late mid last next during")
_JOINED_ARTICLES: Final = words_of("l un")
_RESULTS: Final = words_of("do return mean print give")
_SCALES: Final = frozenset({"hundred", "thousand", "million", "billion", "trillion"})
_CURRENCIES: Final = frozenset("$€£¥₹")
_LETTER_A: Final = re.compile(r"(?<=[^\W\d_] )A(?![\w'])")
"""The letter as a name, as in `plan A`: a capital in the midst of a sentence."""


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
    """The text in normal and standard form."""
    text: str
    """Its words in lower case, with one space between them."""
    words: tuple[Word, ...]
    numbers: tuple[str, ...]
    units: frozenset[str]
    num_negations: int
    exceptions: tuple[str, ...]
    """Kinds in which it narrows the question or leaves something out, sorted: `only`, `other than`, `-less`."""
    question: str
    """The kind of answer that the question wants; empty when no word shows it."""
    clauses: tuple[frozenset[str], ...]
    """The stems of each sentence or clause, without grammar; empty where there is one only."""
    language: str
    """Its language by its words; UNGUARDED for one without guards."""
    code: CodeTokens
    """The parts in which each sign counts."""
    letters: LetterCase
    """The words whose capitals count."""
    grammar: SentenceGrammar
    """Its modals, tenses and quantities."""
    is_whole: bool

    @classmethod
    def of(cls, text: str, language: str | None = None) -> Wording:
        """Take a text apart, which is in the language that its words show if none is given; never raises."""
        plain = normal_form(text)
        text = standard_form(plain)
        tokens = _tokens(text)
        is_whole = len(tokens) <= MAX_WORDS
        code = code_tokens(plain)
        reader = _Reader(
            tokens if is_whole else tokens[:MAX_WORDS],
            has_letter_a=_LETTER_A.search(text) is not None,
            is_about_code=code.is_about_code,
        )
        if language is None:
            language = language_of(_letters_of(reader.lowered))
        guards = GUARDS.get(language)
        reader.read(grammar=None if language == ENGLISH_NAME else frozenset() if guards is None else guards.free)
        if guards is not None:
            reader.take(guards)
        if language in _NOUNS_IN_CAPITALS:
            reader.words = [word._replace(is_name=False) for word in reader.words]
        question = _question(reader.lowered) if guards is None else ""
        return cls(
            text,
            " ".join(reader.lowered),
            tuple(reader.words),
            tuple(reader.numbers),
            frozenset(reader.units),
            reader.num_negations,
            tuple(sorted([*reader.exceptions, *(exceptions_in(reader.lowered) if guards is None else ())])),
            question,
            _stems_of_clauses(text, reader.known),
            language,
            code,
            letter_case(text),
            sentence_grammar(reader.lowered if language == ENGLISH_NAME else (), question),
            is_whole,
        )


def in_one_language(one: Wording, other: Wording) -> tuple[Wording, Wording]:
    """Return two wordings in the language of one of them that the other may be of, too; else as they are."""
    if one.language == other.language:
        return one, other
    shared = languages_of(_letters_of(one.text.split())) & languages_of(_letters_of(other.text.split()))
    for language in sorted(
        {one.language, other.language} & shared - {UNGUARDED}, key=lambda name: name == ENGLISH_NAME
    ):
        return _in_language(one, language), _in_language(other, language)
    return one, other


def _in_language(wording: Wording, language: str) -> Wording:
    return wording if wording.language == language else Wording.of(wording.source, language)


def _letters_of(lowered: Sequence[str]) -> list[str]:
    return [token for token in lowered if token[0].isalpha()]


class _Known(NamedTuple):
    """The properties of a word wherever it stands."""

    word: Word
    unit: str | None
    is_negation: bool
    exception: str
    """Kind of the exception; empty for none."""
    number: tuple[str, str | None] | None
    """Value and unit."""


def _properties_of(text: str) -> _Known:
    bare = _CONTRACTED.sub("", text) if "'" in text else text
    return _Known(
        _word_of(text, bare),
        unit_of(text, after_number=False),
        _is_negation(text),
        exception_of(text),
        number_of(text),
    )


_remembered: Final = lru_cache(maxsize=_MEMORY)(_properties_of)


def _is_negation(text: str) -> bool:
    """Return whether a lower-case word denies, misspelt or not."""
    if text in NEGATIONS or text.endswith("n't"):
        return True
    if not text.isalpha():
        return False
    length = len(text)
    may_be = [*_FIRST_LETTERS.get((length, text[0]), ()), *_LAST_LETTERS.get((length, text[-1]), ())]
    return any(are_one_word(text, negation) for negation in may_be) and not is_known(text)


def _negations_by_letter(at: int) -> dict[tuple[int, str], list[str]]:
    """Return the negations that a word may be with one slip elsewhere, by its length and its letter at a place."""
    found: dict[tuple[int, str], list[str]] = {}
    for negation in NEGATIONS:
        for length in range(len(negation) - 1, len(negation) + 2):
            found.setdefault((length, negation[at]), []).append(negation)
    return found


_FIRST_LETTERS: Final = _negations_by_letter(0)
_LAST_LETTERS: Final = _negations_by_letter(-1)


def _word_of(text: str, bare: str) -> Word:
    if bare in FUNCTION_WORDS or not bare:
        return Word(bare or text, text, 0.0)
    if not text.isalpha() and _is_code(text):
        return Word(text, text, 1.0, is_code=True)
    stem = unit_of(bare, after_number=False) or stem_of(VERB_FORMS.get(bare, bare))
    return Word(stem, bare, 0.5 if bare in COMMON_WORDS or stem in _COMMON_STEMS else 1.0)


_COMMON_STEMS: Final = frozenset(map(stem_of, COMMON_WORDS))


class _KnownWords(dict[str, _Known]):
    """The properties of the lower-case tokens of one text.

    Common words make up most questions, so they are remembered. All others are read anew for each text, so that no time
    tells whether another sender wrote them.
    """

    def __missing__(self, text: str) -> _Known:
        known = self[text] = _remembered(text) if is_common(text) else _properties_of(text)
        return known


class _Reader:
    """A reader that goes through the tokens once."""

    def __init__(self, tokens: Sequence[str], *, has_letter_a: bool = False, is_about_code: bool = False) -> None:
        self._tokens = tokens
        self._is_about_code = is_about_code
        self._has_letter_a = has_letter_a
        self._first = next((at for at, token in enumerate(tokens) if token[0].isalpha()), 0)  # `¿` may stand before it
        num_capitals = sum([token[0].isupper() for token in tokens[1:]])
        self._has_names = num_capitals * 5 <= (len(tokens) - 1) * 3  # else it is a title, or all in capitals
        self.lowered = [token.lower() for token in tokens]
        self.known = _KnownWords()
        self.words: list[Word] = []
        self.numbers: list[str] = []
        self.units: set[str] = set()
        self.num_negations = 0
        self.exceptions: list[str] = []

    def read(self, *, grammar: frozenset[str] | None) -> None:
        """Fill the lists; all words but those of `grammar` carry weight in a language other than English."""
        at = 0
        while at < len(self.lowered):
            known = self.known[self.lowered[at]]
            number = known.number or self._numeral(at)
            if number is not None:
                at += self._number(at, *number)
            elif known.unit is not None and (amount := self._amount(at)) is not None:
                at += 1 + self._number(at + 1, *amount, currency=known.unit)
            else:
                self._word(at, known)
            at += 1
        if grammar is not None:
            self.words = [word._replace(rarity=float(word.text not in grammar)) for word in self.words]

    def take(self, guards: LanguageGuards) -> None:
        """Read the words again as those of a language with guards; English words may stand among them."""
        num_english = sum(word in NEGATIONS and word not in guards.small | guards.negations for word in self.lowered)
        self.num_negations, self.exceptions = guards.num_negations(self.lowered) + num_english, []
        self.words = [
            word._replace(stem=guards.same.get(word.text) or self._stem_behind_article(word)) for word in self.words
        ]

    def _stem_behind_article(self, word: Word) -> str:
        """Return the stem of a word without an article that is joined to it: `homme` for `l'homme`."""
        article, _, thing = word.text.partition("'")
        return self.known[thing].word.stem if thing and article in _JOINED_ARTICLES else word.stem

    def _numeral(self, at: int) -> tuple[str, None] | None:
        """Return the value of a Roman numeral or of `one`; a single letter is a numeral behind some words only."""
        token, word = self._tokens[at], self.lowered[at]
        value = ROMAN.get(word) if token.isupper() else None
        if at and self.lowered[at - 1] in COUNTED_IN_ROMAN:
            value = "1" if word == "one" else value
        elif word == "one" and self._following(at) in _SCALES:
            value = "1"
        elif len(token) == 1 or not (at and self._has_names):
            value = None
        return None if value is None else (value, None)

    def _following(self, at: int) -> str:
        return self.lowered[at + 1] if at + 1 < len(self.lowered) else ""

    def _amount(self, at: int) -> tuple[str, str | None] | None:
        """Return the number behind a sign of a currency."""
        return self.known[self._following(at)].number if self._tokens[at] in _CURRENCIES else None

    def _number(self, at: int, value: str, unit: str | None, *, currency: str | None = None) -> int:
        """Take a number, its further words and its unit, and return how many further tokens they are."""
        taken, are_words = 0, self.lowered[at].isalpha()
        while unit is None and self._following(at + taken).isalpha():
            further = self.known[self._following(at + taken)].number
            total = None if further is None else sum_of(value, further[0], are_words=are_words)
            if further is None or total is None:
                break
            value, unit, taken = total, further[1], taken + 1
        behind = self._following(at + taken)
        is_behind = unit is None and currency is None and unit_of(behind, after_number=True) is not None
        unit = currency or (unit_of(behind, after_number=True) if is_behind else unit)
        self.numbers.append(value)
        self.words.append(Word(value, self.lowered[at], 1.0))
        if unit is not None:
            self.units.add(unit)
            self.words.append(Word(unit, behind if is_behind else unit, 1.0))
        return taken + int(is_behind)

    def _word(self, at: int, known: _Known) -> None:
        word = known.word
        has_capital = self._tokens[at][0].isupper()
        self.num_negations += known.is_negation
        if known.exception:
            self.exceptions.append(known.exception)
        if known.unit is not None:
            self.units.add(known.unit)
        if has_capital and at > self._first and self._has_names and (word.rarity or self._is_designation(at)):
            word = word._replace(is_name=True, rarity=word.rarity or 1.0)
        elif self._is_about_code and self._is_named_part(at):
            word = Word(word.text, word.text, 1.0, is_code=True)
        self.words.append(word)

    def _is_named_part(self, at: int) -> bool:
        """Return whether a word names a part of a program: `while loop`, `what does sorted do`."""
        word, before = self.lowered[at], self.lowered[at - 1] if at else ""
        if word in FUNCTION_WORDS and word not in KEYWORDS:
            return False
        following = self._following(at)
        return following in NAMED_PARTS or (before == "does" and following in _RESULTS)

    def _is_designation(self, at: int) -> bool:
        """Return whether a word of grammar in capitals is a name: `the US`, `plan A`."""
        token = self._tokens[at]
        if token == "May":
            is_dated = self._following(at)[:1].isdigit() or self.lowered[at - 1][0].isdigit()
            return is_dated or self.lowered[at - 1] in _BEFORE_MONTHS
        return token in _SAME_IN_LOWER_CASE or (token == "A" and self._has_letter_a)


def _stems_of_clauses(text: str, known: Mapping[str, _Known]) -> tuple[frozenset[str], ...]:
    parts = [part for part in _clauses(text) if part and not part.isspace()]
    if len(parts) < 2:
        return ()
    words_of_parts = [[known[token.lower()].word for token in _tokens(part)] for part in parts]
    return tuple(frozenset([word.stem for word in words if word.rarity]) for words in words_of_parts)


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

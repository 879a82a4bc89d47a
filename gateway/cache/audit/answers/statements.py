"""Statements of an answer: the words that carry its meaning, its numbers and names in order, and its negations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set
from typing import Final

import msgspec

from gateway.cache.audit.answers.details import Details
from gateway.cache.audit.answers.plain_text import plain_text
from gateway.cache.audit.answers.spoken_numbers import are_equal_numbers, is_number, is_plain_number, tokens_of
from gateway.cache.grammar.lexicon import FUNCTION_WORDS, OPPOSITES, UNITS
from gateway.cache.grammar.stems import stem_of
from gateway.cache.grammar.word_lists import words_of

_TURNS: Final = words_of(
    "not no never none neither nor without nobody nothing cannot but however although though instead rather except "
    "unless only hardly"
)
"""Words that deny, except or contrast: the same words mean something else beside them."""
_FILLERS: Final = words_of(
    "then next finally afterwards following follow followed sure course certainly okay ok yes simply here below above "
    "namely thus therefore so well also"
)
"""Words that only lead from one sentence to the next."""
_OPENINGS: Final = {"yes": True, "true": True, "correct": True, "no": False, "false": False, "incorrect": False}
_NAME: Final = re.compile(r"(?<=[\w,)\]\"'”’%] )[\"'“(]?([A-Z][\w'’-]*)")
_UNITS: Final = frozenset((*UNITS, *UNITS.values())) - {"a", "in"}
_MAX_REPLACED: Final = 2
"""Words that may stand in the place of others."""
_FEW_TOKENS: Final = 8
"""Words of a short text."""
_SPACES: Final = re.compile(r"[ \t]+")


class Statements(msgspec.Struct, frozen=True):
    """Contents of one text."""

    tokens: tuple[str, ...]
    """All its words and numbers."""
    content: frozenset[str]
    """Stems of the words that carry meaning, and the numbers."""
    meant: tuple[str, ...]
    """Their order in the text, with repeats."""
    names: frozenset[str]
    """Stems of the words that a capital inside a sentence shows to be names."""
    turns: Counter[str]
    """Words that deny, except or contrast."""
    details: Details
    """Code, modals and whatever else turns its meaning beside the same words."""

    @classmethod
    def of(cls, text: str) -> Statements:
        """Take a text apart."""
        plain = plain_text(text)
        tokens = tokens_of(plain)
        names = (stem_of(name.casefold()) for name in _NAME.findall(_SPACES.sub(" ", plain)))
        meant = tuple(
            token if is_number(token) else stem_of(token)
            for token in tokens
            if token not in FUNCTION_WORDS and token not in _FILLERS and token not in _TURNS
        )
        return cls(
            tokens=tokens,
            content=frozenset(meant),
            meant=meant,
            names=frozenset(names) - FUNCTION_WORDS,
            turns=Counter(token for token in tokens if token in _TURNS),
            details=Details.of(text, tokens),
        )

    @property
    def numbers(self) -> tuple[str, ...]:
        """Return the numbers in order."""
        return tuple(token for token in self.tokens if is_number(token))

    @property
    def affirms(self) -> bool | None:
        """Return whether the text begins with a yes or a no; None for neither."""
        return _OPENINGS.get(self.tokens[0]) if self.tokens else None

    def contains(self, other: Statements, known: Set[str] = frozenset()) -> bool:
        """Return whether the text states all that the other one does, in this order, and turns nothing around.

        Words of the question, `known`, may be missing unless the text has others of them.
        """
        missing = {token for token in other.content - self.content if not is_number(token)}
        if not missing <= known or (missing and (self.content - other.content) & known):
            return False
        names = self.names | other.names
        return not self.is_opposed_to(other) and _is_within(other._facts(names - missing), self._facts(names))

    def _facts(self, names: Set[str]) -> tuple[str, ...]:
        """Return the numbers, and those names, in order."""
        return tuple(token for token in self.meant if is_number(token) or token in names)

    def is_opposed_to(self, other: Statements) -> bool:
        """Return whether one text denies more than the other, or has the opposite of a word that only the other has."""
        ours, theirs = set(self.tokens), set(other.tokens)
        opposed = any((one, another) in OPPOSITES for one in ours - theirs for another in theirs - ours)
        return opposed or self.turns != other.turns


def have_other_order(one: Statements, other: Statements) -> bool:
    """Return whether the same numbers and names stand in another order: `Ada hired Bo`, `Bo hired Ada`."""
    names = one.names | other.names | {*one.meant[:1], *other.meant[:1]}
    ours, theirs = one._facts(names), other._facts(names)
    return ours != theirs and Counter(ours) == Counter(theirs)


def has_one_replaced(one: Statements, other: Statements) -> bool:
    """Return whether one or two words stand in the place of others that make another fact: `5 kg`, `5 g`.

    In a short text any word of meaning does, in a longer one a unit or a name.
    """
    if len(one.tokens) != len(other.tokens):
        return False
    pairs = [(a, b) for a, b in zip(one.tokens, other.tokens, strict=True) if a != b]
    if not 0 < len(pairs) <= _MAX_REPLACED:
        return False
    names = one.names | other.names
    return any(_is_fact(a, b, names, is_short=len(one.tokens) <= _FEW_TOKENS) for a, b in pairs)


def _is_fact(one: str, other: str, names: Set[str], *, is_short: bool) -> bool:
    if one in _UNITS or other in _UNITS or stem_of(one) in names or stem_of(other) in names:
        return True
    return is_short and one not in FUNCTION_WORDS and other not in FUNCTION_WORDS


def are_comparable(one: Statements, other: Statements) -> bool:
    """Return whether the numbers of both texts are of one form: as many, of the same units, none a date or a time."""
    return len(one.numbers) == len(other.numbers) and _measured(one) == _measured(other) is not None


def _measured(text: Statements) -> Counter[str] | None:
    """Return what stands behind the numbers; None where one is no plain number."""
    if any(not is_plain_number(number) for number in text.numbers):
        return None
    behind = zip(text.tokens, (*text.tokens[1:], ""), strict=True)
    return Counter(after for token, after in behind if is_number(token))


def share_numbers(one: Statements, other: Statements) -> bool:
    """Return whether two texts may be about the same numbers: one has none, or they have one in common."""
    first, second = one.numbers, other.numbers
    return not first or not second or any(are_equal_numbers(a, b) for a in first for b in second)


def differ_in_numbers_alone(one: Statements, other: Statements) -> bool:
    """Return whether two texts have the same words, with other numbers in the same places."""
    pairs = list(zip(one.tokens, other.tokens, strict=False))
    return len(one.tokens) == len(other.tokens) and all(
        a == b or (is_number(a) and is_number(b) and not are_equal_numbers(a, b)) for a, b in pairs
    )


def _is_within(few: tuple[str, ...], many: tuple[str, ...]) -> bool:
    """Return whether the facts appear among the others in the same order."""
    rest = iter(many)
    return all(any(fact == known or _are_equal(fact, known) for known in rest) for fact in few)


def _are_equal(one: str, other: str) -> bool:
    return is_number(one) and is_number(other) and are_equal_numbers(one, other)

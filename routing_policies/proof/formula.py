"""Formula: the Boolean structure of a checked condition over its atoms, with three-valued evaluation.

An atom is a part of a condition without `&&`, `||`, `!` and `? :` outside of parentheses, such as `request.turns <= 2`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from routing_policies.conditions.tokens import ConditionToken, tokens

_OPENING: Final = frozenset({"(", "["})
_CLOSING: Final = frozenset({")", "]"})
_RELATIONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})


@dataclass(frozen=True, slots=True)
class Leaf:
    """An atom, by its key."""

    atom: int


@dataclass(frozen=True, slots=True)
class Negation:
    """True where `part` is false."""

    part: Formula


@dataclass(frozen=True, slots=True)
class Conjunction:
    """True where every part is true; without parts always."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Disjunction:
    """True where any part is true; without parts never."""

    parts: tuple[Formula, ...]


Formula = Leaf | Negation | Conjunction | Disjunction
Valuation = Callable[[int], bool | None]
"""Truth of an atom by its key; None where it is open."""


def truth(formula: Formula, value_of: Valuation) -> bool | None:
    """Return the truth of a formula; None where open atoms decide it."""
    if isinstance(formula, Leaf):
        return value_of(formula.atom)
    if isinstance(formula, Negation):
        found = truth(formula.part, value_of)
        return None if found is None else not found
    ends = isinstance(formula, Disjunction)  # the truth of one part that decides
    is_open = False
    for part in formula.parts:
        found = truth(part, value_of)
        if found is ends:
            return ends
        is_open = is_open or found is None
    return None if is_open else not ends


def open_atom(formula: Formula, value_of: Valuation, *, wanted: bool = True) -> tuple[int, bool] | None:
    """Return an open atom that an open formula depends on, and the truth by which it may become `wanted`."""
    match formula:
        case Leaf(atom):
            return (atom, wanted) if value_of(atom) is None else None
        case Negation(part):
            return open_atom(part, value_of, wanted=not wanted)
        case Conjunction(parts) | Disjunction(parts):
            for part in parts:
                if truth(part, value_of) is None and (found := open_atom(part, value_of, wanted=wanted)) is not None:
                    return found
    return None


def formula_of(source: str, key_of: Callable[[str], int]) -> Formula:
    """Return the structure of a checked condition; `key_of` gives each atom's text a key."""
    return _parse(source, [token for token in tokens(source) if token.kind != "end"], key_of)


def _parse(source: str, words: Sequence[ConditionToken], key_of: Callable[[str], int]) -> Formula:
    marks = _outer_signs(words)
    if "?" in marks:
        return _parse_choice(source, words, marks["?"][0], key_of)
    for sign, kind in (("||", Disjunction), ("&&", Conjunction)):
        if sign in marks:
            return kind(tuple(_parse(source, part, key_of) for part in _split(words, marks[sign])))
    if "!=" in marks:  # an atom is positive, so that others like it share it
        at = words[marks["!="][0]].at - 1
        text = _text(source, words)
        begin = at - (words[0].at - 1)
        return Negation(Leaf(key_of(f"{text[:begin]}=={text[begin + 2 :]}")))
    if not _RELATIONS.isdisjoint(marks):
        return Leaf(key_of(_text(source, words)))
    if words[0].text == "!":
        return Negation(_parse(source, words[1:], key_of))
    if words[0].text == "(" and _end_of(words, 0) == len(words) - 1:
        return _parse(source, words[1:-1], key_of)
    return Leaf(key_of(_text(source, words)))


def _parse_choice(source: str, words: Sequence[ConditionToken], at: int, key_of: Callable[[str], int]) -> Formula:
    condition = _parse(source, words[:at], key_of)
    colon = next(place for place in _outer_signs(words)[":"] if place > at)
    then, otherwise = _parse(source, words[at + 1 : colon], key_of), _parse(source, words[colon + 1 :], key_of)
    return Disjunction((Conjunction((condition, then)), Conjunction((Negation(condition), otherwise))))


def _outer_signs(words: Sequence[ConditionToken]) -> dict[str, list[int]]:
    """Return the places of the operators outside of all parentheses."""
    found: dict[str, list[int]] = {}
    depth = 0
    for place, word in enumerate(words):
        if word.kind == "sign" and word.text in _OPENING:
            depth += 1
        elif word.kind == "sign" and word.text in _CLOSING:
            depth -= 1
        elif depth == 0 and (word.kind == "sign" or word.text == "in"):
            found.setdefault(word.text, []).append(place)
    return found


def _end_of(words: Sequence[ConditionToken], begin: int) -> int:
    """Return the place of the parenthesis that closes the one at `begin`."""
    depth = 0
    for place in range(begin, len(words)):
        if words[place].kind == "sign":
            depth += (words[place].text in _OPENING) - (words[place].text in _CLOSING)
        if depth == 0:
            return place
    raise AssertionError("a checked condition closes its parentheses")


def _split(words: Sequence[ConditionToken], places: Sequence[int]) -> list[Sequence[ConditionToken]]:
    bounds = [-1, *places, len(words)]
    return [words[begin + 1 : end] for begin, end in pairwise(bounds)]


def _text(source: str, words: Sequence[ConditionToken]) -> str:
    last = words[-1]
    return source[words[0].at - 1 : last.at - 1 + len(last.text)]

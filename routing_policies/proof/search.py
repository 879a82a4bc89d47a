"""Search: a request that makes formulas true, or the proof that there is none.

The search branches on one open atom at a time and evaluates the formulas in three values. It ends with a candidate
whose values the caller confirms by running the code that serves requests. It is bounded; where the bound was hit, or an
atom of several variables was in the way, the answer is not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import prod
from typing import Final

from routing_policies.proof.atoms import FEW, AtomTable, OpenLiteral, TextLiteral, Value, ValueAtom
from routing_policies.proof.formula import Conjunction, Disjunction, Formula, Leaf, Negation, open_atom, truth
from routing_policies.proof.texts import TextAnswer, TextAtom, candidates_for, text_for

MAX_NODES: Final = 20_000
"""Branches of one search."""
MAX_WORK: Final = 1_000_000
"""Evaluations of formulas in all searches of a document, so a large one takes seconds; the rest is not proven."""
_CONFIRMED_WORK: Final = 20
_MAX_TRIED: Final = 512
_MAX_VALUES: Final = 24

Confirm = Callable[[Mapping[str, Value]], bool]
"""Check of a candidate by the code that serves requests; returns True if it is a witness."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Values of a request that was found and confirmed; without one, whether it is proven that there is none."""

    values: Mapping[str, Value] | None
    is_exact: bool = True
    against: tuple[str, ...] = ()
    """Routes that had to be excluded."""

    @property
    def is_impossible(self) -> bool:
        """True if no request makes the formulas true."""
        return self.values is None and self.is_exact


@dataclass(slots=True)
class _State:
    """A partial choice: the values left of listed variables, and the truth of literals."""

    masks: dict[str, int]
    literals: dict[int, bool] = field(default_factory=dict)


class RequestSearch:
    """Search over one policy's variables."""

    def __init__(self, table: AtomTable, *, max_nodes: int = MAX_NODES) -> None:
        self._table = table
        self._max_nodes = max_nodes
        self._num_nodes = 0
        self._is_exact = True
        self._whole = {name: table.whole(name) for name in table.values}
        self._answers: dict[tuple[str, frozenset[tuple[int, bool]]], TextAnswer] = {}
        self.num_searched = 0
        """Branches of all searches."""
        self._work = 0

    def find(self, formulas: Sequence[Formula], masks: Mapping[str, int], confirm: Confirm) -> SearchResult:
        """Return a confirmed request that makes all formulas true.

        Args:
            formulas: What must be true.
            masks: Values that are possible, as bits, of the variables that are limited.
            confirm: Runs the code that serves requests on a candidate.
        """
        self._num_nodes, self._is_exact = 0, True
        whole = self._whole | dict(masks)
        if not all(whole.values()):
            return SearchResult(None)
        found = self._search(list(formulas), _State(whole), confirm)
        self.num_searched += self._num_nodes
        if found is None and self._table.coarse and not self._table.coarse.isdisjoint(_atoms_of(formulas)):
            self._is_exact = False
        return SearchResult(found, self._is_exact)

    def _search(self, formulas: list[Formula], state: _State, confirm: Confirm) -> Mapping[str, Value] | None:
        self._num_nodes += 1
        self._work += len(formulas) + 1
        if self._num_nodes > self._max_nodes or self._work > MAX_WORK:
            self._is_exact = False
            return None

        def value_of(key: int) -> bool | None:
            atom = self._table.atoms[key]
            return self._masked(atom, state) if isinstance(atom, ValueAtom) else state.literals.get(key)

        left = []
        for formula in formulas:
            found = truth(formula, value_of)
            if found is False:
                return None
            if found is None:
                left.append(formula)
        if not left:
            return self._confirmed(state, confirm)
        choice = open_atom(left[0], value_of)
        assert choice is not None, "an open formula has an open atom"
        key, wanted = choice
        for is_true in (wanted, not wanted):
            narrower = self._with(state, key, is_true)
            if narrower is not None and (values := self._search(left, narrower, confirm)) is not None:
                return values
        return None

    @staticmethod
    def _masked(atom: ValueAtom, state: _State) -> bool | None:
        left = state.masks[atom.variable]
        held = left & atom.mask
        return True if held == left else False if not held else None

    def _with(self, state: _State, key: int, is_true: bool) -> _State | None:
        """Return the state with an atom's truth; None where that contradicts the others."""
        atom = self._table.atoms[key]
        if isinstance(atom, ValueAtom):
            left = state.masks[atom.variable] & (atom.mask if is_true else ~atom.mask)
            return _State({**state.masks, atom.variable: left}, state.literals) if left else None
        narrower = _State(state.masks, {**state.literals, key: is_true})
        if isinstance(atom, TextLiteral):
            answer = self._text_for(narrower, atom.variable)
            if answer.value is None:
                self._is_exact = self._is_exact and answer.is_exact
                return None
        return narrower

    def _text_for(self, state: _State, variable: str) -> TextAnswer:
        """Return a text for the state's literals, from the answers so far where the same was sought."""
        keys = self._keys(state, variable)
        name = variable, frozenset((key, state.literals[key]) for key in keys)
        known = self._answers.get(name)
        if known is None:
            known = self._answers[name] = text_for(self._literals(state, variable), self._table.texts[variable])
        return known

    def _keys(self, state: _State, variable: str) -> list[int]:
        atoms = self._table.atoms
        return [
            key for key in state.literals if isinstance(atom := atoms[key], TextLiteral) and atom.variable == variable
        ]

    def _literals(self, state: _State, variable: str) -> list[tuple[TextAtom, bool]]:
        found = []
        for key in self._keys(state, variable):
            atom = self._table.atoms[key]
            assert isinstance(atom, TextLiteral), "only texts have literals of a variable"
            found.append((atom.atom, state.literals[key]))
        return found

    def _confirmed(self, state: _State, confirm: Confirm) -> Mapping[str, Value] | None:
        """Return values of the state that are confirmed; the first ones unless atoms of several variables are in it."""
        options = {name: list(self._listed(name, mask)) for name, mask in state.masks.items()}
        texts = self._table.texts
        for name in texts:
            answer = self._text_for(state, name)
            assert answer.value is not None, "a contradiction ends the branch before"
            options[name] = [answer.value]
        opened = {
            name
            for key in state.literals
            if isinstance(atom := self._table.atoms[key], OpenLiteral)
            for name in atom.variables
        }
        for name in opened & texts.keys():
            found = candidates_for(self._literals(state, name), texts[name])
            options[name] = [*dict.fromkeys([*options[name], *islice(found, _MAX_VALUES), *self._constants()])]
        plain = {name: values if name in opened else values[:1] for name, values in options.items()}
        num_all = prod(map(len, plain.values()))
        is_whole = num_all <= _MAX_TRIED and opened <= FEW
        for values in islice(product(*plain.values()), _MAX_TRIED):
            candidate = dict(zip(plain, values, strict=True))
            self._work += _CONFIRMED_WORK
            fault = _fit(candidate, options)
            if fault is None and confirm(candidate):
                return candidate
            is_whole = is_whole and (fault == "turns" or (fault is None and bool(opened)))
        self._is_exact = self._is_exact and is_whole
        return None

    def _listed(self, name: str, mask: int) -> Iterator[Value]:
        return (value for place, value in enumerate(self._table.values[name]) if mask >> place & 1)

    def _constants(self) -> list[str]:
        """Return the constants of all text atoms, for atoms that compare two texts, and the tenants."""
        found = [
            constant for atom in self._table.atoms if isinstance(atom, TextLiteral) for constant in atom.atom.constants
        ]
        return [*found, *(str(tenant) for tenant in self._table.values["tenant"] if tenant is not None)][:_MAX_VALUES]


def _atoms_of(formulas: Sequence[Formula]) -> set[int]:
    found: set[int] = set()
    waiting = list(formulas)
    while waiting:
        match waiting.pop():
            case Leaf(atom):
                found.add(atom)
            case Negation(part):
                waiting.append(part)
            case Conjunction(parts) | Disjunction(parts):
                waiting += parts
    return found


def _fit(values: dict[str, Value], options: Mapping[str, Sequence[Value]]) -> str | None:
    """Raise numbers to what the text needs: a turn, and a prompt of its size. Return the one that cannot be raised."""
    text = str(values["text"])
    for name, least in (("turns", min(len(text), 1)), ("prompt_bytes", len(text.encode()))):
        fitting = [value for value in options[name] if isinstance(value, int) and value >= least]
        if not fitting:
            return name
        if int(values[name] or 0) < least:
            values[name] = fitting[0]
    return None

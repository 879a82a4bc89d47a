"""AtomTable: the atoms of all conditions of a policy, each as a set of values of one variable or as a literal.

The variables `tenant`, `model` and the flags have few values. `turns` and `prompt_bytes` have one value for each
interval that the atoms cut out, with all remainders where an atom uses `%`. So for these the search loses nothing.
Texts are literals, solved by `texts`. An atom of several variables is open: the search tries it, and proves nothing by
it, unless all of them have few values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import lcm
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

from routing_policies.conditions.checker import Checker
from routing_policies.conditions.condition import MAX_TEXT_CHARS, Condition
from routing_policies.conditions.tokens import ConditionToken, tokens
from routing_policies.policy.document import KEYLESS_TENANT, Match, Policy
from routing_policies.policy.references import known_models
from routing_policies.proof.formula import Conjunction, Formula, Leaf, formula_of
from routing_policies.proof.texts import TextAtom, TextDomain, TextKind

MAX_PROMPT_BYTES: Final = 16 * 1024 * 1024
"""Size of the largest body that the gateway reads."""
MAX_TURNS: Final = 1_000_000
_MAX_HEADER_CHARS: Final = 4_096
_MAX_REMAINDERS: Final = 64
_MAX_LISTED: Final = 2_000
_LARGE: Final = 10**6
_FLAGS: Final = ("has_tools", "has_images", "stream")
FEW: Final = frozenset({"tenant", "model", *_FLAGS})
"""Variables all of whose values are listed."""
_RANGES: Final = {"turns": (0, MAX_TURNS), "prompt_bytes": (1, MAX_PROMPT_BYTES)}
_USUAL: Final = {"turns": 1, "prompt_bytes": 1_000}
_TEXT: Final = "text"
_HEADER: Final = "header:"
_COMPARISONS: Final[dict[str, Callable[[Any, int], bool]]] = {
    "<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne,
}  # fmt: skip
_READ: Final = frozenset({"request", "headers", "tenant"})
_METHODS: Final[dict[str, TextKind]] = {
    "startsWith": "prefix",
    "endsWith": "suffix",
    "contains": "part",
    "matches": "pattern",
}

Value = str | int | bool | None


@dataclass(frozen=True, slots=True)
class ValueAtom:
    """A statement about one variable of listed values: those for which it is true, as bits."""

    variable: str
    mask: int


@dataclass(frozen=True, slots=True)
class TextLiteral:
    """A statement about one text."""

    variable: str
    atom: TextAtom


@dataclass(frozen=True, slots=True)
class OpenLiteral:
    """A statement that only the search can try."""

    variables: tuple[str, ...]


Atom = ValueAtom | TextLiteral | OpenLiteral


@dataclass(slots=True)
class ReadRequest:
    """Values of a request's variables, as `Facts` too."""

    values: Mapping[str, Value]

    def fact(self, name: str) -> str | int | bool:
        """Return the value of `request.NAME`; see `Facts.fact`."""
        value = self.values[name]
        assert value is not None
        return value

    def holds(self, condition: Condition) -> bool:
        """Return whether a condition holds."""
        headers = {
            name.removeprefix(_HEADER): str(value)
            for name, value in self.values.items()
            if name.startswith(_HEADER) and value is not None
        }
        tenant = self.values.get("tenant")
        return condition.holds(self, None if tenant is None else str(tenant), headers)


@dataclass(frozen=True, slots=True)
class _Source:
    """An atom's text with the variables that it reads."""

    text: str
    variables: tuple[str, ...]
    num_read: int
    words: tuple[ConditionToken, ...]


@dataclass(slots=True)
class AtomTable:
    """Variables, atoms and routes of one policy."""

    policy: Policy
    values: dict[str, list[Value]] = field(default_factory=dict)
    """Listed values by variable, the most usual first."""
    texts: dict[str, TextDomain] = field(default_factory=dict)
    atoms: list[Atom] = field(default_factory=list)
    matches: dict[str, Formula] = field(default_factory=dict)
    """Match of each route, without its models."""
    coarse: set[int] = field(default_factory=set)
    """Atoms of numbers for which the listed values may not be enough."""
    _sources: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        policy = self.policy
        self.values["tenant"] = [*([] if policy.has_keys else [self._keyless()]), *(one.id for one in policy.tenants)]
        self.values["model"] = [*known_models(policy)]
        self.values |= {flag: [False, True] for flag in _FLAGS}
        self.texts[_TEXT] = TextDomain(max_chars=MAX_TEXT_CHARS, is_header=False)
        structures = {route.id: self._structure(route.match.when) for route in policy.routes}
        sources = [_read(text) for text in self._sources]
        for name in _RANGES:
            self.values[name] = list(_representatives(name, [one for one in sources if name in one.variables]))
        for source in sources:
            for variable in source.variables:
                self._declare(variable)
        self.atoms = [self._atom(source) for source in sources]
        crowded = {name for name in _RANGES if len(self.values[name]) >= _MAX_LISTED}
        self.coarse = {
            key
            for key, source in enumerate(sources)
            if len(source.variables) == 1 and source.variables[0] in _RANGES
            if source.variables[0] in crowded or not _is_cut(source)
        }
        for route in policy.routes:
            self.matches[route.id] = Conjunction((*self._plain(route.match), structures[route.id]))

    def mask_of(self, variable: str, is_in: Callable[[Any], bool]) -> int:
        """Return the listed values of a variable for which `is_in` is true, as bits."""
        return sum(1 << place for place, value in enumerate(self.values[variable]) if is_in(value))

    def whole(self, variable: str) -> int:
        """Return all listed values of a variable, as bits."""
        return (1 << len(self.values[variable])) - 1

    def value_leaf(self, variable: str, is_in: Callable[[Any], bool]) -> Leaf:
        """Return a new atom of one variable with listed values."""
        self.atoms.append(ValueAtom(variable, self.mask_of(variable, is_in)))
        return Leaf(len(self.atoms) - 1)

    def _keyless(self) -> str | None:
        """Return the tenant of requests without a key; None, as in a policy's tests, where no condition reads it."""
        reads = any(route.match.when is not None and "tenant" in route.match.when for route in self.policy.routes)
        is_named = reads or any(tenant.id == KEYLESS_TENANT for tenant in self.policy.tenants)
        return KEYLESS_TENANT if is_named else None

    def _structure(self, when: str | None) -> Formula:
        if when is None:
            return Conjunction(())
        if _may_fail([token for token in tokens(when) if token.kind != "end"]):
            return Leaf(self._key(when))  # an error makes the whole condition false, not the part with the error
        return formula_of(when, self._key)

    def _key(self, text: str) -> int:
        return self._sources.setdefault(text, len(self._sources))

    def _plain(self, match: Match) -> list[Formula]:
        """Return the conditions on the tenant and on headers."""
        found: list[Formula] = []
        if match.tenants is not None:
            found.append(self.value_leaf("tenant", frozenset(match.tenants).__contains__))
        for name, value in match.headers.items():
            self._declare(_HEADER + name)
            # A header may be absent, which conditions read as empty text and this match does not.
            self.atoms.append(TextLiteral(_HEADER + name, _equal_to((value,))) if value else OpenLiteral(()))
            found.append(Leaf(len(self.atoms) - 1))
        return found

    def _declare(self, variable: str) -> None:
        if variable.startswith(_HEADER):
            self.texts[variable] = TextDomain(max_chars=_MAX_HEADER_CHARS, is_header=True)

    def _atom(self, source: _Source) -> Atom:
        if len(source.variables) != 1:
            return self._constant(source) if not source.variables else OpenLiteral(source.variables)
        (variable,) = source.variables
        condition = Condition(source.text)
        if variable not in self.texts:
            compared = _compared(source.words)
            if compared is None:
                return ValueAtom(variable, self.mask_of(variable, lambda value: _holds(condition, variable, value)))
            sign, number = compared
            return ValueAtom(variable, self.mask_of(variable, lambda value: sign(value, number)))
        return TextLiteral(variable, _text_atom(source, lambda value: _holds(condition, variable, value)))

    def _constant(self, source: _Source) -> Atom:
        is_true = ReadRequest({}).holds(Condition(source.text))
        return ValueAtom("stream", self.whole("stream") if is_true else 0)


def _holds(condition: Condition, variable: str, value: Value) -> bool:
    return ReadRequest({variable: value}).holds(condition)


def _compared(words: Sequence[ConditionToken]) -> tuple[Callable[[Any, int], bool], int] | None:
    """Return the comparison and the number of an atom such as `request.turns <= 2`; None for any other."""
    if len(words) != 5 or words[0].text != "request" or words[4].kind != "number":
        return None
    sign = _COMPARISONS.get(words[3].text)
    return None if sign is None else (sign, int(words[4].text))


def _read(text: str) -> _Source:
    checker = Checker(text)
    checker.check()
    names = {*checker.fields, *(_HEADER + header for header in checker.headers), *(["tenant"] * checker.needs_tenant)}
    words = tuple(token for token in tokens(text) if token.kind != "end")
    num_read = sum(word.kind == "name" and word.text in _READ for word in words)
    return _Source(text, tuple(sorted(names)), num_read, words)


def _may_fail(words: Sequence[ConditionToken]) -> bool:
    """Return whether an evaluation may end in an error: a division by zero or an overflow."""
    signs = [word.text for word in words if word.kind == "sign"]
    if not {"+", "-", "*", "/", "%"} & set(signs):
        return False
    for place, word in enumerate(words):
        if word.text in ("/", "%") and (words[place + 1].kind != "number" or float(words[place + 1].text) == 0):
            return True
    return signs.count("*") > 1 or any(word.kind == "number" and float(word.text) > _LARGE for word in words)


def _is_cut(source: _Source) -> bool:
    """Return whether the listed values of a number are enough for an atom: one relation of sums, the variable once."""
    signs = [word.text for word in source.words if word.kind == "sign"]
    if "?" in signs or source.num_read != 1 or _may_fail(source.words) or _relation_of(source.words) is None:
        return False
    return "%" not in signs or _modulus_of(source) is not None


def _relation_of(words: Sequence[ConditionToken]) -> int | None:
    """Return the place of the only relation, outside of parentheses; None where there is no such."""
    found = [place for place, word in enumerate(words) if word.text in (*_COMPARISONS, "in") and word.kind != "string"]
    depth = sum((word.text == "(") - (word.text == ")") for word in words[: found[0]]) if len(found) == 1 else 1
    return found[0] if depth == 0 else None


def _modulus_of(source: _Source) -> int | None:
    """Return N of `request.NAME % N`, where an atom takes remainders of the bare variable only."""
    words = [word.text for word in source.words]
    at = words.index("%")
    if words.count("%") != 1 or at < 3 or words[at - 3 : at - 1] != ["request", "."]:
        return None
    before = words[at - 4] if at > 3 else ""
    modulus = int(words[at + 1])
    return modulus if before not in ("-", "*", "/") and modulus <= _MAX_REMAINDERS else None


def _representatives(name: str, sources: Sequence[_Source]) -> Sequence[int]:
    """Return one value for each interval between the cuts, or as many as there are remainders."""
    low, high = _RANGES[name]
    cuts = {low}
    modulus = 1
    for source in sources:
        if not _is_cut(source) or source.variables != (name,):
            numbers = [int(float(word.text)) for word in source.words if word.kind == "number"]
            cuts |= {number + step for number in numbers for step in (-1, 0, 1, 2)}
        elif (found := _modulus_of(source) if any(word.text == "%" for word in source.words) else None) is not None:
            modulus = min(lcm(modulus, found), _MAX_REMAINDERS**2)
        else:
            cuts |= set(_cuts_of(name, source))
    edges = [*sorted(cut for cut in cuts if low <= cut <= high), high + 1]
    values: list[int] = []
    for begin, end in pairwise(edges):
        count = min(modulus, end - begin)
        first = min(max(_USUAL[name], begin), end - count)
        values += range(first, first + count)
    return sorted(values, key=lambda value: (value == 0, abs(value - _USUAL[name])))[:_MAX_LISTED]


def _cuts_of(name: str, source: _Source) -> list[int]:
    """Return the values at which the sides of an atom change their order."""
    words = source.words
    compared = _compared(words)
    if compared is not None:
        return [compared[1], compared[1] + 1]
    at = _relation_of(words)
    assert at is not None, "a source that is cut has one relation"
    left = source.text[: words[at].at - 1]
    right = source.text[words[at].at - 1 + len(words[at].text) :]
    if words[at].text != "in":
        return [cut for sign in ("<", "<=") for cut in _steps(name, f"{left}{sign}{right}")]
    constants = [word.text for word in words[at + 1 :] if word.kind == "number"]
    return [cut for constant in constants for sign in ("<", "<=") for cut in _steps(name, f"{left}{sign}{constant}")]


def _steps(name: str, source: str) -> list[int]:
    """Return the value from which an atom has another truth; it changes once at most."""
    condition = Condition(source)

    low, high = _RANGES[name]
    before = _holds(condition, name, low)
    if _holds(condition, name, high) is before:
        return []
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _holds(condition, name, middle) is before else (low, middle)
    return [high]


def _text_atom(source: _Source, holds: Callable[[str], bool]) -> TextAtom:
    words = source.words
    size = 3 if words[0].text == "request" else 4
    variable, rest = words[:size], words[size:]
    if source.num_read == 1 and variable[0].text in ("request", "headers"):
        shapes = [word.kind if word.kind in ("string", "number") else word.text for word in rest]
        if shapes == ["==", "string"]:
            return _equal_to((_constant_of(rest[1]),))
        if shapes[:2] == ["in", "["] and len(shapes) > 3:
            return _equal_to(tuple(_constant_of(word) for word in rest if word.kind == "string"))
        if len(shapes) == 5 and shapes[0] == "." and shapes[1] in _METHODS and shapes[3] == "string":
            constant, kind = _constant_of(rest[3]), _METHODS[rest[1].text]
            return TextAtom(kind=kind, constants=(constant,), holds=_method(kind, constant) or holds)
    return _size_atom(source) or TextAtom(kind="odd", holds=holds)


def _size_atom(source: _Source) -> TextAtom | None:
    """Return an atom such as `size(request.text) < 5` or `request.text.size() < 5` with its bounds."""
    shape = re.sub(r"\s+", "", source.text)
    found = re.fullmatch(r"""(?:size\((?P<a>[^()]+)\)|(?P<b>[^()]+)\.size\(\))(?P<sign>[<>=]=?|!=)(?P<n>\d+)""", shape)
    if found is None or source.num_read != 1:
        return None
    number, sign = int(found["n"]), found["sign"]
    most = 10**9
    bounds = {
        "<": (0, number - 1), "<=": (0, number), ">": (number + 1, most), ">=": (number, most), "==": (number, number),
    }  # fmt: skip
    if sign not in bounds:
        return None
    low, high = bounds[sign]
    return TextAtom(kind="size", bounds=(low, high), holds=lambda value: low <= len(value) <= high)


def _method(kind: TextKind, constant: str) -> Callable[[str], bool] | None:
    """Return what a method means, faster than by running the condition; None for patterns."""
    if kind == "prefix":
        return lambda value: value.startswith(constant)
    if kind == "suffix":
        return lambda value: value.endswith(constant)
    return None if kind == "pattern" else lambda value: constant in value


def _equal_to(constants: tuple[str, ...]) -> TextAtom:
    return TextAtom(kind="in", constants=constants, holds=frozenset(constants).__contains__)


def _constant_of(word: ConditionToken) -> str:
    import cel  # as in `Condition`

    return str(cel.evaluate(word.text, {}))

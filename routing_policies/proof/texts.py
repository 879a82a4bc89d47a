"""Texts that make literals about one text true or false, such as `startsWith("a")` and not `contains("b")`.

Without bounds on the length one candidate decides: the required prefix, parts and suffix, apart by a sign that no
constant has. A forbidden part can then only lie within a required one, and so it lies in every text that has that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations, product
from typing import Final, Literal

from routing_policies.proof.patterns import MAX_SAMPLES, samples_of

TextKind = Literal["in", "prefix", "suffix", "part", "size", "pattern", "odd"]
_SEPARATORS: Final = "~#|^`@;_=+*%$&!zqx0123456789"
_MAX_PERMUTED: Final = 4
_PLAIN: Final = frozenset({"in", "prefix", "suffix", "part"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TextAtom:
    """A statement about one text."""

    kind: TextKind
    constants: tuple[str, ...] = ()
    """Values of `in`; the prefix, suffix, part or pattern alone for these."""
    bounds: tuple[int, int] = (0, 0)
    """Least and greatest length, for `size`."""
    holds: Callable[[str], bool]
    """Truth for a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDomain:
    """Texts that a variable can have."""

    max_chars: int
    is_header: bool
    """True if control characters and outer blanks are not possible."""

    def has(self, value: str) -> bool:
        """Return whether the variable can have this value."""
        if len(value) > self.max_chars:
            return False
        return not self.is_header or (all("\x20" <= char <= "\x7e" for char in value) and value.strip() == value)


Literals = Sequence[tuple[TextAtom, bool]]


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """A text that makes all literals true, or None; `is_exact` is False where one may exist unfound."""

    value: str | None
    is_exact: bool = True


def text_for(literals: Literals, domain: TextDomain) -> TextAnswer:
    """Return a text with which every literal has its truth."""
    plain = [literal for literal in literals if literal[0].kind in _PLAIN]
    if len(plain) < len(literals):
        simpler = _first(plain, domain)
        if simpler.value is None and simpler.is_exact:
            return simpler
    return _first(literals, domain)


def candidates_for(literals: Literals, domain: TextDomain) -> Iterator[str]:
    """Yield the texts that may make the literals true, the plainest first; some may not."""
    given = [atom for atom, is_true in literals if is_true and atom.kind == "in"]
    if given:
        yield from given[0].constants
        return
    yield ""
    separator = _separator(literals)
    prefix = max(_wanted(literals, "prefix"), key=len, default="")
    suffix = max(_wanted(literals, "suffix"), key=len, default="")
    parts = [*dict.fromkeys(_wanted(literals, "part"))]
    short = separator.join([prefix, *parts, suffix])
    yield short
    for samples in _sample_sets(literals):
        yield separator.join([prefix, *parts, *samples, suffix])
        yield "".join([prefix, *samples, *parts, suffix])
    least, most = _length_bounds(literals, domain)
    yield short[: len(prefix)] + separator * max(least - len(short), 0) + short[len(prefix) :]
    if most < len(short):
        yield from _short_texts(prefix, parts, suffix)


def _first(literals: Literals, domain: TextDomain) -> TextAnswer:
    for value in candidates_for(literals, domain):
        if domain.has(value) and all(atom.holds(value) is is_true for atom, is_true in literals):
            return TextAnswer(value)
    if any(is_true and atom.kind == "in" for atom, is_true in literals):
        return TextAnswer(None)  # one of few values is required, and none will do
    return TextAnswer(None, is_exact=_is_exact(literals, domain))


def _is_exact(literals: Literals, domain: TextDomain) -> bool:
    """Return whether no text is possible where no candidate is."""
    if not any(atom.kind not in _PLAIN for atom, _ in literals):
        pieces = _wanted(literals, "prefix", "suffix", "part")
        return bool(_separator(literals)) and sum(map(len, pieces)) + len(pieces) + 2 <= domain.max_chars
    least, most = _length_bounds(literals, domain)
    return least > most or any(len(part) > most for part in _wanted(literals, "prefix", "suffix", "part"))


def _wanted(literals: Literals, *kinds: TextKind) -> list[str]:
    return [atom.constants[0] for atom, is_true in literals if is_true and atom.kind in kinds]


def _sample_sets(literals: Literals) -> Iterator[tuple[str, ...]]:
    """Yield a sample of each wanted pattern, in several combinations."""
    patterns = _wanted(literals, "pattern")
    if patterns:
        yield from islice(product(*map(samples_of, patterns)), MAX_SAMPLES)


def _separator(literals: Literals) -> str:
    """Return a sign that no constant has; an empty text where each of ours is taken."""
    used = {char for atom, _ in literals for constant in atom.constants for char in constant.lower()}
    return next((char for char in _SEPARATORS if char not in used), "")


def _length_bounds(literals: Literals, domain: TextDomain) -> tuple[int, int]:
    least, most = 0, domain.max_chars
    for atom, is_true in literals:
        if atom.kind != "size":
            continue
        low, high = atom.bounds
        if is_true:
            least, most = max(least, low), min(most, high)
        elif low <= 0:
            least = max(least, high + 1)
        elif high >= domain.max_chars:
            most = min(most, low - 1)
        elif least in range(low, high + 1):
            least = high + 1
    return least, most


def _short_texts(prefix: str, parts: list[str], suffix: str) -> Iterator[str]:
    """Yield joins without a sign between, with overlaps: texts for tight bounds on the length."""
    needed = [part for part in parts if part not in prefix and part not in suffix]
    if len(needed) > _MAX_PERMUTED:
        return
    for order in permutations(needed):
        whole = prefix
        for part in (*order, suffix):
            whole = _overlapped(whole, part)
        yield whole


def _overlapped(begin: str, end: str) -> str:
    size = next(size for size in range(min(len(begin), len(end)), -1, -1) if begin.endswith(end[:size]))
    return begin + end[size:]

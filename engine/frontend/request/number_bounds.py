"""Bounds of numbers in JSON schemas, in a form that the grammar compiler keeps exactly.

The compiler reads bounds as 64-bit floats and compares integers of 64 bits: beyond 2^53 it would round a bound, and
allow numbers outside of it. A bound that it cannot hold is moved inwards to the next number that it can, so an answer
is always inside; where nothing is left inside, the schema is refused by the keyword's name. The compiler also writes
the numbers of `enum` and `const` as floats: one that it would write differently is refused.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from engine.frontend.request.errors import ApiError, invalid_value

MAX_LEAST_COUNT = 1_000_000
"""The largest minimum count of characters, items or members that a schema may state; no answer is that long."""
MAX_MOST_COUNT = 2**30
"""A larger limit of characters, items or members is no limit."""
_MOST_INTEGER = float(2**63 - 1024)
"""The largest float that the compiler can take for an integer."""
_MOST_NUMBER = 9.22337203685477e18
"""The largest number of 15 digits below it: the compiler writes bounds of other numbers in decimal digits."""
_PLAIN_MOST = 1e15
_PLAIN_LEAST = 1e-6
"""Between these magnitudes the compiler takes bounds as they are written."""
_DIGITS = Context(prec=15, rounding=ROUND_CEILING)
"""Floats of this many decimal digits are written with just these digits."""
_SIDES = (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1))
_LEAST_COUNTS = ("minLength", "minItems", "minProperties", "minContains")
_MOST_COUNTS = ("maxLength", "maxItems", "maxProperties", "maxContains")

Node = dict[str, Any]


def exact_bounds(node: Node, param: str) -> Node:
    """Return a schema node whose bounds the compiler keeps. Raises ApiError (400) that names the keyword."""
    for keyword in ("enum", "const"):
        if keyword in node:
            _check_values(node[keyword], keyword, param)
    if any(keyword in node for keyword in _LEAST_COUNTS + _MOST_COUNTS):
        node = _counted(node, param)
    bounds = {keyword: node[keyword] for *side, _ in _SIDES for keyword in side if keyword in node}
    if not bounds or not all(map(_is_number, bounds.values())):
        return node  # the compiler names what is no number
    if not _is_integer(node):
        node = _without_narrow_ends(node)
    return node if all(map(_is_plain, bounds.values())) else _bounded(node, bounds, param)


def _check_values(value: Any, keyword: str, param: str) -> None:
    """Raise ApiError (400) for an integer, at any depth of the value, that the compiler would round."""
    if isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            _check_values(child, keyword, param)
    elif isinstance(value, int) and not _is_written_exactly(value):
        message = f"{param}: {keyword}: the number {_short(value)} has more digits than this engine can hold apart"
        raise invalid_value(param, f"{message}; use a string.")


def _is_written_exactly(value: int) -> bool:
    """Return whether the nearest float's shortest digits are the integer, and the compiler does not cut it off."""
    return abs(value) <= _MOST_INTEGER and Decimal(repr(float(value))) == value


def _counted(node: Node, param: str) -> Node:
    changed = dict(node)
    for keyword in _LEAST_COUNTS + _MOST_COUNTS:
        value = node.get(keyword)
        if isinstance(value, float) and value.is_integer():
            changed[keyword] = value = int(value)
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if keyword in _LEAST_COUNTS and value > MAX_LEAST_COUNT:
            raise invalid_value(param, f"{param}: {keyword} {value} exceeds the limit of {MAX_LEAST_COUNT}.")
        if keyword in _MOST_COUNTS and value > MAX_MOST_COUNT:
            del changed[keyword]
    return changed


def _bounded(node: Node, bounds: Node, param: str) -> Node:
    """The node with inclusive bounds on the sides that are far out."""
    is_integer = _is_integer(node)
    most = _MOST_INTEGER if is_integer else _MOST_NUMBER
    changed, ends = dict(node), []
    for inclusive, exclusive, sign in _SIDES:
        end = _inner_end(node, inclusive, exclusive, sign, is_integer)
        if end > most:
            raise _beyond(bounds, param)
        ends.append(end)
        if not all(_is_plain(node.get(keyword, 0)) for keyword in (inclusive, exclusive)):
            changed.pop(exclusive, None)
            changed[inclusive] = _written(sign * max(end, -most))
    if ends[0] > -ends[1]:
        raise _beyond(bounds, param)
    for i, (inclusive, _, sign) in enumerate(_SIDES):
        if ends[i] == -math.inf and ends[1 - i] > _PLAIN_MOST:  # the compiler cannot leave this side open then
            changed[inclusive] = _written(-sign * most)
    return changed


def _inner_end(node: Node, inclusive: str, exclusive: str, sign: int, is_integer: bool) -> float:
    """The least number that the compiler can hold and the side allows; of the upper side, everything is mirrored."""
    ends = [-math.inf]
    for keyword in (inclusive, exclusive):
        if keyword not in node:
            continue
        value, is_open = sign * node[keyword], keyword == exclusive
        if is_integer:
            ends.append(_at_least(math.floor(value) + 1 if is_open else math.ceil(value)))
        elif _is_plain(value) and not is_open:
            ends.append(float(value))
        elif _is_plain(value):
            ends.append(float(_DIGITS.create_decimal(math.nextafter(value, math.inf))))
        elif abs(value) < _PLAIN_LEAST:
            ends.append(_PLAIN_LEAST if value > 0 else 0.0)
        else:
            ends.append(float(_DIGITS.create_decimal(math.floor(value) + is_open)))
    return max(ends)


def _without_narrow_ends(node: Node) -> Node:
    """The node without exclusive whole numbers where no other whole number is inside: the compiler would allow them."""
    low = max(node.get("minimum", -math.inf), node.get("exclusiveMinimum", -math.inf))
    high = min(node.get("maximum", math.inf), node.get("exclusiveMaximum", math.inf))
    if not 0 < high - low < 1:
        return node
    changed = dict(node)
    for inclusive, exclusive, sign in _SIDES:
        value = node.get(exclusive)
        if value is None or not float(value).is_integer():
            continue
        inner = round(value + sign * _PLAIN_LEAST, 6)
        inner = inner if inner != value else math.nextafter(value, sign * math.inf)
        del changed[exclusive]
        changed[inclusive] = sign * max(sign * inner, sign * node.get(inclusive, inner))
    return changed


def _at_least(bound: int) -> float:
    """The smallest float that is not below the bound; Python compares integers and floats exactly."""
    try:
        nearest = float(bound)
    except OverflowError:
        return math.inf if bound > 0 else -math.inf
    return nearest if nearest >= bound else math.nextafter(nearest, math.inf)


def _beyond(bounds: Node, param: str) -> ApiError:
    shown = " and ".join(f"{keyword} {_short(value)}" for keyword, value in bounds.items())
    return invalid_value(param, f"{param}: {shown}: this engine can hold no number apart that satisfies this.")


def _written(bound: float) -> float:
    """The bound as an integer where it is one: JSON has no infinity and the compiler wants digits."""
    return int(bound) if bound.is_integer() else bound


def _is_plain(value: float) -> bool:
    return value == 0 or _PLAIN_LEAST <= abs(value) <= _PLAIN_MOST


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(node: Node) -> bool:
    kinds = node.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return "integer" in kinds and "number" not in kinds


def _short(value: float) -> str:
    return str(value) if abs(value) < 10**40 else f"of {len(str(abs(int(value))))} digits"

"""Bounds of numbers in JSON schemas, in a form that the grammar compiler keeps exactly.

The compiler reads bounds as 64-bit floats and compares 64-bit integers. Beyond 2^53 it would round a bound and allow
numbers outside of it. A bound that it cannot represent is therefore moved inwards to the next one that it can.
If no number is left inside, the schema is refused with the keyword's name. The compiler also writes the numbers of
`enum` and `const` as floats; a number that it would write differently is refused.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from engine.frontend.request.errors import ApiError, invalid_value

MAX_LEAST_COUNT = 1_000_000
"""Largest minimum count of characters, items or members that a schema may state; no answer is that long."""
MAX_MOST_COUNT = 2**30
"""Largest maximum count of characters, items or members that is enforced; a larger one is dropped."""
_MOST_INTEGER = float(2**63 - 1024)
"""Largest float that the compiler accepts for an integer."""
_MOST_NUMBER = 9.22337203685477e18
"""Largest number of 15 digits below `_MOST_INTEGER`: the compiler writes other bounds in decimal digits."""
_PLAIN_MOST = 1e15
_PLAIN_LEAST = 1e-6
"""Smallest magnitude, as `_PLAIN_MOST` is the largest, of bounds that the compiler takes as written."""
_DIGITS = Context(prec=15, rounding=ROUND_CEILING)
"""Decimal context of 15 digits; a float of so few digits is written with just these digits."""
_SIDES = (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1))
_LEAST_COUNTS = ("minLength", "minItems", "minProperties", "minContains")
_MOST_COUNTS = ("maxLength", "maxItems", "maxProperties", "maxContains")

Node = dict[str, Any]


def exact_bounds(node: Node, param: str) -> Node:
    """Return a schema node whose bounds the compiler keeps.

    Raises:
        ApiError: A bound or value cannot be enforced; the message names the keyword (400).
    """
    for keyword in ("enum", "const"):
        if keyword in node:
            _check_values(node[keyword], keyword, param)
    if any(keyword in node for keyword in _LEAST_COUNTS + _MOST_COUNTS):
        node = _counted(node, param)
    bounds = {keyword: node[keyword] for *side, _ in _SIDES for keyword in side if keyword in node}
    if not bounds or not all(map(_is_number, bounds.values())):
        return node  # the compiler reports bounds that are not numbers
    if not _is_integer(node):
        node = _without_narrow_ends(node)
    return node if all(map(_is_plain, bounds.values())) else _bounded(node, bounds, param)


def _check_values(value: Any, keyword: str, param: str) -> None:
    """Raise ApiError (400) for an integer, at any depth of the value, that the compiler would round."""
    if isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            _check_values(child, keyword, param)
    elif isinstance(value, int) and not _is_written_exactly(value):
        message = f"`{param}`: {keyword}: the number {_short(value)} has more digits than this engine can hold apart"
        raise invalid_value(param, f"{message}; use a string.")


def _is_written_exactly(value: int) -> bool:
    """Return whether the nearest float's shortest digits are the integer, and the compiler does not truncate it."""
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
            raise invalid_value(param, f"`{param}` must have a {keyword} of at most {MAX_LEAST_COUNT}; got {value}.")
        if keyword in _MOST_COUNTS and value > MAX_MOST_COUNT:
            del changed[keyword]
    return changed


def _bounded(node: Node, bounds: Node, param: str) -> Node:
    """Return the node with inclusive bounds on the sides whose bounds are too large or too small in magnitude."""
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
        if ends[i] == -math.inf and ends[1 - i] > _PLAIN_MOST:  # the compiler requires a bound on this side then
            changed[inclusive] = _written(-sign * most)
    return changed


def _inner_end(node: Node, inclusive: str, exclusive: str, sign: int, is_integer: bool) -> float:
    """Return the least number that the compiler can represent and that one side allows.

    For the upper side (`sign` -1) all numbers are mirrored at zero.
    """
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
    """Return the node without exclusive integer bounds if no other integer lies inside.

    The compiler would allow such a bound itself.
    """
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
    """Return the smallest float that is not below the bound; Python compares integers and floats exactly."""
    try:
        nearest = float(bound)
    except OverflowError:
        return math.inf if bound > 0 else -math.inf
    return nearest if nearest >= bound else math.nextafter(nearest, math.inf)


def _beyond(bounds: Node, param: str) -> ApiError:
    shown = " and ".join(f"{keyword} {_short(value)}" for keyword, value in bounds.items())
    return invalid_value(param, f"`{param}`: {shown}: this engine can hold no number apart that satisfies this.")


def _written(bound: float) -> float:
    """Return an integral bound as int: the compiler expects digits."""
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

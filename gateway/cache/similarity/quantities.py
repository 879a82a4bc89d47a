"""Quantities: figures by their value, and units by what they measure."""

from __future__ import annotations

import re
from typing import Final

from gateway.cache.grammar.lexicon import NUMBERS, UNITS, UNITS_AFTER_NUMBERS

_SCALES: Final = {"k": 3, "m": 6, "mn": 6, "b": 9, "bn": 9}
_MULTIPLES: Final = frozenset({100, 1000, 100_000, 1_000_000, 10_000_000, 1_000_000_000, 1_000_000_000_000})
_FIGURE: Final = re.compile(r"(\d+(?:[.,:/]\d+)*)([a-z%°]*)", re.ASCII)
_GROUPED: Final = re.compile(r"\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d+)?", re.ASCII)


def unit_of(word: str, *, after_number: bool) -> str | None:
    """Return what the word measures in; some words are units only behind a number."""
    return UNITS.get(word) if after_number or word not in UNITS_AFTER_NUMBERS else None


def number_of(token: str) -> tuple[str, str | None] | None:
    """Return value and unit of a number, or None for a word or a name such as `3d` or `4runner`.

    Figures stay as they are written but for their thousands: 3.10 may be a version, and is not 3.1.
    """
    found = _FIGURE.fullmatch(token)
    if found is None:
        return (NUMBERS[token], None) if token in NUMBERS else None
    digits, end = found.groups()
    if _GROUPED.fullmatch(digits):
        digits = digits.replace(",", "")
    if digits.isdigit():
        digits = digits.lstrip("0") or "0"
    if end in ("st", "nd", "rd", "th"):
        return f"{digits}th", None
    if end in _SCALES and digits.isdigit():
        return digits + "0" * _SCALES[end], None
    return (digits, UNITS.get(end)) if not end or end in UNITS else None


def sum_of(value: str, following: str, *, are_words: bool) -> str | None:
    """Return the number that two numbers in sequence are, such as `twenty-four` or `10 thousand`; None: they are two.

    `are_words`: both are written as words; figures before a word are another number, as in `20 five-letter words`.
    """
    if not (following.isdigit() and value.replace(".", "", 1).isdigit()):
        return None
    first, second = float(value), int(following)
    if second in _MULTIPLES and first < second:
        product = first * second
        return str(int(product)) if product.is_integer() else str(product)
    if are_words and first.is_integer() and 20 <= first < 100 and first % 10 == 0 and 0 < second < 10:
        return str(int(first) + second)
    return None

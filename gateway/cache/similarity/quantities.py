"""Quantities: numbers by their value however they are written, and units by what they measure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gateway.cache.similarity.lexicon import ONES, ORDINALS, TENS, UNITS, UNITS_AFTER_NUMBERS, words_of

_SMALL: Final = {word: value for value, word in enumerate(ONES)} | {
    word: 10 * value for value, word in enumerate(TENS, start=2)
}
_LARGE: Final = {"hundred": 100, "thousand": 1000, "lakh": 10**5, "million": 10**6, "crore": 10**7} | {
    "billion": 10**9,
    "trillion": 10**12,
}
_FIXED: Final = {word: f"{value}th" for value, word in enumerate(ORDINALS, start=1)} | {
    "half": "0.5",
    "quarter": "0.25",
    "dozen": "12",
    "twice": "2x",
    "double": "2x",
    "triple": "3x",
    "once": "1x",
    "thrice": "3x",
    "couple": "couple",
}
NUMBER_WORDS: Final = frozenset({*_SMALL, *_LARGE, *_FIXED})
"""With one of these a number in words may begin."""
_ALSO_NO_NUMBER: Final = words_of("one first second once double quarter couple")
"""They count only where the word behind them says that they count."""
_SHORT_SCALES: Final = {"k": 3, "m": 6, "mn": 6, "b": 9, "bn": 9}
_FIGURE: Final = re.compile(r"(\d+(?:[.,:/]\d+)*)([a-z%°]*)", re.ASCII)
_GROUPED: Final = re.compile(r"\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d+)?", re.ASCII)
_MAX_WORDS: Final = 8


def unit_of(word: str, *, after_number: bool) -> str | None:
    """Return what the word measures in; some words are units only behind a number."""
    return UNITS.get(word) if after_number or word not in UNITS_AFTER_NUMBERS else None


def figure(token: str) -> tuple[str, str | None] | None:
    """Return value and unit of a token that begins with a digit, or None for a name such as `3d` or `4runner`.

    Figures stay as they are written but for their thousands: 3.10 may be a version, and is not 3.1.
    """
    found = _FIGURE.fullmatch(token)
    if found is None:
        return None
    digits, end = found.groups()
    if _GROUPED.fullmatch(digits):
        digits = digits.replace(",", "")
    if digits.isdigit():
        digits = digits.lstrip("0") or "0"
    if end in ("st", "nd", "rd", "th"):
        return f"{digits}th", None
    if end in _SHORT_SCALES and digits.isdigit():
        return digits + "0" * _SHORT_SCALES[end], None
    return (digits, UNITS.get(end)) if not end or end in UNITS else None


def scaled(value: str, word: str) -> str | None:
    """Return `5000000` for `5` and `million`; None when the word is no scale or the value no whole number."""
    scale = _LARGE.get(word)
    return None if scale is None or not value.isdigit() or len(value) > 15 else str(int(value) * scale)


def spelled(words: Sequence[str], at: int) -> tuple[str, int] | None:
    """Return the value of the number in words that begins at `at` and how many words it takes, or None."""
    word, following = words[at], words[at + 1] if at + 1 < len(words) else ""
    if word in _ALSO_NO_NUMBER and following not in UNITS and following not in _LARGE:
        return None
    if word in _FIXED:
        return _FIXED[word], 1
    total, part, length = 0, 0, 0
    for word in words[at : at + _MAX_WORDS]:
        scale = _LARGE.get(word)
        if word in _SMALL:
            part += _SMALL[word]
        elif scale is None:
            break
        elif scale == 100 and part:
            part *= 100
        elif length:
            total, part = total + (part or 1) * scale, 0
        else:
            part = scale
        length += 1
    return (str(total + part), length) if length else None

"""Numbers of a text by their value: `1,000`, `a thousand` and `1000` are one token, as are `50 %` and `50 percent`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Final

from gateway.cache.grammar.lexicon import UNITS
from gateway.cache.grammar.word_lists import CODE_WORDS


def _numbered(words: str, start: int, step: int = 1) -> dict[str, int]:
    return {word: start + step * place for place, word in enumerate(words.split())}


_ONES: Final = _numbered("zero one two three four five six seven eight nine", 0)
_TEENS: Final = _numbered("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen", 10)
_TENS: Final = _numbered("twenty thirty forty fifty sixty seventy eighty ninety", 20, 10)
_SPOKEN: Final = _ONES | _TEENS | _TENS
_SCALES: Final = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALES_BEHIND_DIGITS: Final = _SCALES | {"k": 10**3, "mn": 10**6, "bn": 10**9}
_MAX_SPOKEN: Final = 24
"""Words of one number."""
_MONEY: Final = frozenset("€$£")
_WORD: Final = re.compile(
    r"(?<![^\s(=])[-\u2212]?\d+(?:[.,:/]\d+)*|\d+(?:[.,:/]\d+)*|[^\W\d_]+(?:['’][^\W\d_]+)*|[€$£%°]"
)
_GROUPED: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_FULL_HOUR: Final = re.compile(r"(\d{1,2}):00")
_FRACTION: Final = re.compile(r"(\d{1,3})/(\d{1,3})")
_COMMA: Final = re.compile(r"(\d+),(\d{1,2})")
"""A fraction behind a comma, as most languages write it."""
_MONEY_SCALE: Final = re.compile(r"([€$£])\s?(\d[\d.,]*)\s?(m|b)\b")
_VERSIONED: Final = CODE_WORDS | {"version", "versions", "release", "v"}
"""Words before a number whose last zero counts."""
_SHORTENED: Final = re.compile(r"(?<=[^\W\d_])['’](?:s|re|ve|ll|m|d)\b")
_NEGATED: Final = re.compile(r"\b(?:cannot|([a-z]+)n['’]t)\b")


def is_number(token: str) -> bool:
    """Return whether a token is a number, a time or a date."""
    return token[-1].isdecimal() and token[token[0] == "-"].isdecimal()


def is_plain_number(token: str) -> bool:
    """Return whether a token is a number that is no time, date, ratio or version."""
    return _NUMBER.fullmatch(token) is not None


def are_equal_numbers(one: str, other: str) -> bool:
    """Return whether two tokens state one number; a rounded fraction is the number that it was rounded from."""
    if one == other:
        return True
    numbers = _value_of(one), _value_of(other)
    if None in numbers:
        return False
    first, second = sorted((number for number in numbers if number is not None), key=_num_decimals)
    return first == second or (
        _num_decimals(second) > _num_decimals(first) and round(second, _num_decimals(first)) == first
    )


def tokens_of(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case, its numbers by value, and units behind numbers by one name."""
    text = _MONEY_SCALE.sub(r"\2 \3n \1", text.casefold())
    words = _WORD.findall(_SHORTENED.sub("", _NEGATED.sub(_spelt_out, text)))
    tokens = list(_valued(_money_behind(words)))
    for place, (before, word) in enumerate(pairwise(tokens), start=1):
        if is_number(before):
            tokens[place] = UNITS.get(word, word)
    return tuple(tokens)


def _spelt_out(found: re.Match[str]) -> str:
    return {None: "can", "ca": "can", "wo": "will"}.get(found[1], found[1]) + " not"


def _value_of(token: str) -> Decimal | None:
    """Return the value of a number, a full hour, or a fraction; None for dates, ratios and versions."""
    hour = _FULL_HOUR.fullmatch(token)
    if hour is not None:
        return Decimal(hour[1])
    fraction = _FRACTION.fullmatch(token)
    if fraction is not None and int(fraction[2]):
        return Decimal(fraction[1]) / Decimal(fraction[2])
    return Decimal(token) if _NUMBER.fullmatch(token) else None


def _money_behind(words: Sequence[str]) -> list[str]:
    """Return the words with `5 $` for `$ 5`."""
    found = list(words)
    for place, (sign, number) in enumerate(pairwise(words)):
        if sign in _MONEY and is_number(number):
            found[place], found[place + 1] = number, sign
    return found


def _valued(words: Sequence[str]) -> Iterator[str]:
    place = 0
    while place < len(words):
        after = words[place + 1] if place + 1 < len(words) else ""
        if is_number(words[place]):
            is_version = place > 0 and words[place - 1] in _VERSIONED
            value, length = _written(words[place].replace("\u2212", "-"), after, is_version=is_version)
        else:
            value, length = _spoken(words[place : place + _MAX_SPOKEN])
            if words[place] == "one" and length == 1 and after not in UNITS:  # the pronoun
                length = 0
        yield value if length else words[place]
        place += max(1, length)


def _written(digits: str, after: str, *, is_version: bool) -> tuple[str, int]:
    """Return the value of a number in digits, and how many words state it; a version has no value."""
    if is_version and "." in digits:
        return digits.replace(".", ":"), 1
    if _COMMA.fullmatch(digits):
        digits = digits.replace(",", ".")
    if _GROUPED.fullmatch(digits):
        digits = digits.replace(",", "")
    if not _NUMBER.fullmatch(digits):
        return digits, 1
    scale = _SCALES_BEHIND_DIGITS.get(after)
    return _shown(Decimal(digits) * (scale or 1)), 1 if scale is None else 2


def _spoken(words: Sequence[str]) -> tuple[str, int]:
    """Return the value of the number in words that begins here, and how many words it has; 0 without one."""
    total = current = length = 0
    for place, word in enumerate(words):
        if word in _SPOKEN and (current % 100 == 0 or (word in _ONES and current % 100 in _TENS.values())):
            current += _SPOKEN[word]
        elif word == "hundred" and current < 10:
            current = max(1, current) * 100
        elif word == "dozen" and current < 10:
            current = max(1, current) * 12
        elif word in _SCALES:
            total, current = total + max(1, current) * _SCALES[word], 0
        elif not (word == "and" and length and words[place + 1 : place + 2] and words[place + 1] in _SPOKEN):
            break
        else:
            continue
        length = place + 1
    return str(total + current), length


def _shown(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _num_decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0

"""Quantities: numbers by their value however they are written, and units by what they measure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final


def _in_order(text: str) -> list[str]:
    return text.split()


_SMALL: Final = {
    word: value
    for value, word in enumerate(
        _in_order(
            """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
            seventeen eighteen nineteen"""
        )
    )
}
_TENS: Final = {
    word: 10 * value
    for value, word in enumerate(_in_order("twenty thirty forty fifty sixty seventy eighty ninety"), start=2)
}
_LARGE: Final = {"hundred": 100, "thousand": 1000, "lakh": 10**5, "million": 10**6, "crore": 10**7} | {
    "billion": 10**9,
    "trillion": 10**12,
}
_ORDINALS: Final = {
    word: f"{value}th"
    for value, word in enumerate(
        _in_order(
            """first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth
            fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"""
        ),
        start=1,
    )
}
_MULTIPLES: Final = {"half": "0.5", "quarter": "0.25", "dozen": "12", "twice": "2x", "double": "2x", "triple": "3x"} | {
    "once": "1x",
    "thrice": "3x",
    "couple": "couple",
}
NUMBER_WORDS: Final = frozenset({*_SMALL, *_TENS, *_LARGE, *_ORDINALS, *_MULTIPLES})
"""With one of these a number in words may begin."""
_ALSO_NO_NUMBER: Final = frozenset({"one", "first", "second", "once", "double", "quarter", "couple"})
"""Count only where the words around them say that they count."""
_SHORT_SCALES: Final = {"k": 3, "m": 6, "mn": 6, "b": 9, "bn": 9}
_FIGURE: Final = re.compile(r"(\d+(?:[.,:/]\d+)*)([a-z%°]*)", re.ASCII)
_GROUPED: Final = re.compile(r"\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d+)?", re.ASCII)
_ORDINAL_ENDS: Final = frozenset({"st", "nd", "rd", "th"})

_UNITS: Final = """
mg milligram milligrams; g gram grams gramme grammes; kg kilogram kilograms kilo kilos kgs; lb lbs pound
pounds; oz ounce ounces; ton tons; tonne tonnes; mm millimeter millimeters millimetre millimetres; cm
centimeter centimeters centimetre centimetres; metre meter meters metres; km kilometer kilometers kilometre
kilometres kms; mile miles mi; inch inches; ft foot feet; yard yards yd; acre acres; hectare hectares; ml
milliliter milliliters millilitre millilitres; liter liters litre litres; gallon gallons; pint pints; cup
cups; tablespoon tablespoons tbsp; teaspoon teaspoons tsp; ns nanosecond nanoseconds; us microsecond
microseconds µs; ms millisecond milliseconds; s sec secs seconds; min mins minute minutes; h hr hrs hour
hours; day days daily; week weeks weekly; month months monthly; quarter quarters quarterly; year years yr yrs
yearly annual annually; decade decades; century centuries; bit bits; byte bytes; kb kilobyte kilobytes kib; mb
megabyte megabytes mib; gb gigabyte gigabytes gib; tb terabyte terabytes tib; hz hertz; khz kilohertz; mhz
megahertz; ghz gigahertz; w watt watts; kw kilowatt kilowatts; mw megawatt megawatts; kwh; volt volts; amp
amps ampere amperes; ohm ohms; joule joules; calorie calories cal; kcal kilocalorie kilocalories; celsius
centigrade; fahrenheit; kelvin; pascal pascals; psi; bar bars; percent % pct percentage; degree degrees °; usd
$ dollar dollars bucks; eur € euro euros; gbp £ sterling; inr ₹ rupee rupees rs; jpy ¥ yen; yuan cny rmb; cent
cents; mph; kmh kph; knot knots; px pixel pixels; rpm; dpi; fps; lumen lumens; decibel decibels db; newton
newtons
"""


def _by_name(text: str) -> dict[str, str]:
    lines = [line.split() for line in text.replace("\n", " ").split(";")]
    return {name: names[0] for names in lines for name in names}


UNITS: Final = _by_name(_UNITS)
"""Every name of a unit → its first one."""
_ONLY_AFTER_NUMBERS: Final = frozenset(
    {"s", "us", "g", "h", "w", "min", "bar", "bars", "foot", "cup", "cups", "mb", "b", "cal"}
)


def unit_of(word: str, *, after_number: bool) -> str | None:
    """What the word measures in; some words are units only behind a number."""
    unit = UNITS.get(word)
    return None if unit is None or (word in _ONLY_AFTER_NUMBERS and not after_number) else unit


def figure(token: str) -> tuple[str, str | None] | None:
    """The value and the unit of a token that begins with a digit; None for a name such as `3d` or `4runner`.

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
    if not end:
        return digits, None
    if end in _ORDINAL_ENDS:
        return f"{digits}th", None
    if end in _SHORT_SCALES and digits.isdigit():
        return digits + "0" * _SHORT_SCALES[end], None
    unit = UNITS.get(end)
    return (digits, unit) if unit is not None else None


def scaled(value: str, word: str) -> str | None:
    """`5` and `million` → `5000000`; None when the word is no scale or the value no whole number."""
    scale = _LARGE.get(word)
    return None if scale is None or not value.isdigit() or len(value) > 15 else str(int(value) * scale)


def spelled(words: Sequence[str], at: int) -> tuple[str, int] | None:
    """The value of the number in words that begins at `at`, and how many words it takes; None when there is none."""
    word = words[at]
    following = words[at + 1] if at + 1 < len(words) else ""
    if word in _ALSO_NO_NUMBER and following not in UNITS and following not in _LARGE:
        return None
    if word in _MULTIPLES:
        return _MULTIPLES[word], 1
    if word in _ORDINALS:
        return _ORDINALS[word], 1
    total, part, length = 0, 0, 0
    for word in words[at : at + 8]:
        value = _SMALL.get(word, _TENS.get(word))
        scale = _LARGE.get(word)
        if value is not None:
            part += value
        elif scale == 100 and part:
            part *= 100
        elif scale is not None and length:
            total, part = total + (part or 1) * scale, 0
        elif scale is not None:
            part = scale
        else:
            break
        length += 1
    return (str(total + part), length) if length else None

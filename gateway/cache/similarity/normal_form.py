"""Normal form: one text for everything that a reader would see as the same letters."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_ALIKE: Final = str.maketrans(
    "аеорсухіјѕԁԛԝӏһкмнтвАВЕКМНОРСТУХІЈЅοανρτικυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ’‘ʼ´`“”„‐‑‒–—−",
    "aeopcyxijsdqwlhkmhtbABEKMHOPCTYXIJSoavptikuxABEZHIKMNOPTYX'''''\"\"\"------",
)
_QUOTES: Final = {code: letter for code, letter in _ALIKE.items() if not chr(code).isalpha()}
_LATIN: Final = re.compile(r"[a-z]")
_WORD: Final = re.compile(r"\w+")
_MAX_FOLDS: Final = 4
_MAX_MARKS: Final = 30
"""The bound of Unicode's stream-safe text format (UAX 15): no language puts more marks on a letter."""
_RAISED: Final = "⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ"
_LOWERED: Final = "₀₁₂₃₄₅₆₇₈₉"
_POWER: Final = re.compile(rf"(?<=[^\W_{_RAISED}{_LOWERED}]|[)\]])(?=[{_RAISED}⁻⁺])[⁻⁺]?[{_RAISED}]+(?![{_RAISED}⁻⁺])")
"""A raised number behind another sign; with a sign behind it it is a charge (`Fe²⁺`)."""
_BASE: Final = re.compile(rf"(?<=\d)(?<![{_RAISED}{_LOWERED}])(?=[{_LOWERED}])")
_UNIT: Final = re.compile(r"[^\W\d_]+\Z")
_MEASURES: Final = frozenset({"m", "mm", "cm", "dm", "km", "µm", "in", "ft", "yd", "mi", "s"})
"""Units of which `m²` is written `m2` too."""
_MAX_MEASURE: Final = max(map(len, _MEASURES))


def normal_form(text: str) -> str:
    """Return the text composed (NFKC), without invisible characters, with Latin letters for look-alikes.

    A power is written `10^9`, and a number to a base `2_10`. Case stays. Applying it again changes nothing.
    """
    if text.isascii():
        return text if text.isprintable() else _visible(text)
    text = _with_places(_visible(text))
    if len(text) > _MAX_MARKS:
        text = _readable(text)
    for _ in range(_MAX_FOLDS):
        composed = unicodedata.normalize("NFKC", _visible(unicodedata.normalize("NFKC", text)))
        folded = _WORD.sub(_unmasked, composed).translate(_QUOTES)
        if folded == text:
            break
        text = folded
    return text


def without_accents(word: str) -> str:
    """Return a word as it is typed on keys without accents: `cual` for `cuál`."""
    return "".join(char for char in unicodedata.normalize("NFKD", word) if not unicodedata.combining(char))


def _with_places(text: str) -> str:
    """Return the text with a sign before numbers that are raised or lowered behind others: `10⁹` is not `109`."""
    return _BASE.sub("_", _POWER.sub(_raised, text))


def _raised(found: re.Match[str]) -> str:
    unit = _UNIT.search(found.string[max(0, found.start() - _MAX_MEASURE - 1) : found.start()])
    return found.group() if unit is not None and unit.group() in _MEASURES else f"^{found.group()}"


def _unmasked(found: re.Match[str]) -> str:
    """Return a word of Latin letters and look-alikes in Latin; a word of another script alone stays what it is."""
    word = found.group()
    folded = word.translate(_ALIKE)
    return folded if folded.isascii() and _LATIN.search(word.lower()) else word


def _readable(text: str) -> str:
    """Return the text with few marks on each letter: normalising sorts them, in the square of their number."""
    cached, num_marks = [], 0
    for char in text:
        num_marks = num_marks + 1 if unicodedata.combining(char) else 0
        if num_marks <= _MAX_MARKS:
            cached.append(char)
    return "".join(cached)


def _visible(text: str) -> str:
    """Return the text without controls, formats (zero width, direction) and the like; white space is a space."""
    return "".join(
        " " if char.isspace() else char
        for char in text
        if char.isspace() or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn")
    )

"""Texts that are not what they look like: hidden characters, turned directions, letters of several scripts in a word.

An encoder sees other tokens than a reader sees letters, so such a text can be made to lie near any stored one. Plain
letters do that too when a search strings improbable tokens together (Zou et al., 2023).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_MARKS: Final = 2
"""Combining marks on one letter; writing needs no more, towers of them do."""

MAX_ODD: Final = 1
MAX_ODD_RATIO: Final = 0.15
"""Share of a text's words that are no words; a question about code may have a few."""
_odd: Final = re.compile(
    r"[a-z]{4}[A-Z]|[A-Za-z][\]\[(){}<>|\\^~@#*=+]+[A-Za-z]|([^\w\s])(?!\1)[^\w\s]{2}|[b-df-hj-np-tv-xz]{6}"
).search
"""A capital inside (`similarlyNow`), letters around brackets (`Me(giving`), three signs, letters without a vowel."""
_HIDDEN: Final = frozenset({"Cf", "Co", "Cs", "Cn"})
_PLAIN_CONTROLS: Final = frozenset("\t\n\r")
_DISGUISES: Final = (
    *((0xFF10, 0xFF19), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A), (0x1D400, 0x1D7FF)),
    *((0x2460, 0x24FF), (0x1F130, 0x1F189), (0xFE00, 0xFE0F)),
)
"""Latin letters and digits in other clothes: full width, mathematical, circled, squared; and variation selectors."""
_LATIN: Final = "LATIN"
_LOOK_ALIKES: Final = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})
"""Scripts with letters that look like Latin ones."""


def is_suspicious(text: str) -> bool:
    """Return whether a reader and an encoder would see different texts, or only an encoder makes sense of it."""
    if text.isascii():
        if not text.isprintable() and any(not (char.isprintable() or char in _PLAIN_CONTROLS) for char in text):
            return True
        return _is_garbled(text)
    marks, scripts = 0, set[str]()
    for char in text:
        kind = unicodedata.category(char)
        marks = marks + 1 if kind == "Mn" else 0
        if _is_hidden(char, kind) or marks > MAX_MARKS:
            return True
        if kind[0] == "L":
            scripts.add(_script(char))
            if _LATIN in scripts and not _LOOK_ALIKES.isdisjoint(scripts):
                return True
        elif kind[0] != "M":
            scripts.clear()
    return False


def _is_garbled(text: str) -> bool:
    """Return whether too many words are random letters and signs for a text that a person wrote."""
    words = text.split()
    num_odd = sum([_odd(word) is not None for word in words])
    return num_odd > MAX_ODD and num_odd > MAX_ODD_RATIO * len(words)


def _is_hidden(char: str, kind: str) -> bool:
    if kind in _HIDDEN or (kind == "Cc" and char not in _PLAIN_CONTROLS):
        return True
    return any(first <= ord(char) <= last for first, last in _DISGUISES)


def _script(char: str) -> str:
    """Return the first word of the character's name, which for letters is their script."""
    return unicodedata.name(char, "").partition(" ")[0]

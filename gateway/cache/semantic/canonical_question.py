"""Canonical question: the form in which a question is encoded, one for all ways to write it."""

from __future__ import annotations

import re
from typing import Final

from gateway.cache.grammar.spelling import corrected
from gateway.cache.similarity.normal_form import normal_form

_ENDING: Final = re.compile(r"[\s.?!,;:…]+$")
_MAX_CORRECTED: Final = 600
"""Longest text whose spelling is looked at, in characters; longer ones get no similar response."""


def canonical_question(text: str) -> str:
    """Return the text in normal form, with single spaces, sure slips corrected, and one question mark at its end.

    The encoder gives a question without its mark another vector; it was trained on questions that have one.
    """
    spaced = " ".join(normal_form(text).split())
    bare = _ENDING.sub("", spaced)
    if not bare:
        return spaced
    return (corrected(bare) if len(bare) <= _MAX_CORRECTED else bare) + "?"

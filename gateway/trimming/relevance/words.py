"""Words of a text as a search compares them: without case, common endings and words that carry no topic."""

from __future__ import annotations

import re
from typing import Final

PREFIX_CHARS: Final = 5
"""Length of the beginning by which inflected words of any language meet."""
_MIN_INFLECTED_CHARS: Final = 7

_WORD: Final = re.compile(r"\w+", re.UNICODE)
_CAMEL: Final = re.compile(r"(?<=[a-z\d])(?=[A-Z])")
_UNSPACED: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)
"""Scripts that put no spaces between words, or attach endings to them: Thai, Lao, Khmer, Kana, Han, Hangul."""
_STOP_WORDS: Final = (
    "a about all also am an and any are as at be been but by can could did do does for from had has have he her "
    "him his how i if in into is it its just me my no not of on or our she so some tell than that the their "
    "them then there these they this those to up us was we were what when where which who whom whose why will "
    "with would you your please question text notes read answer use following according say said says der die "
    "das den dem des ein eine einen einem einer und oder ist sind war waren wird werden hat haben wer wie wo "
    "wann warum welche welcher welches zu zum zur mit von vom auf im an bei für nicht auch sich es er sie wir "
    "ihr le la les un une des du de et ou est sont était a ont qui que quoi quand où comment pourquoi quel "
    "quelle dans sur pour par avec ne pas se ce cette il elle nous vous ils elles au aux el los las una unos "
    "unas y o es son era fue ha han quién qué cuándo dónde cómo cuál en con por para no se su sus del al lo il "
    "gli i e è sono chi che cosa quando dove come perché quale nel nella di da non si het een en of is zijn was "
    "wie wat waar hoe welke van op met niet te"
)
_STOP: Final = frozenset(_STOP_WORDS.split())


class Words:
    """Splitter of texts into stems; it remembers the stems of words seen before."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}

    def of(self, text: str) -> list[str]:
        """Return the stems of a text, in order; of a long word its beginning too, marked by an asterisk.

        For scripts without spaces between words, each pair of neighbouring characters is one stem.
        """
        stems: list[str] = []
        known = self._known
        for word in _WORD.findall(text):
            found = known.get(word)
            if found is None:
                found = known[word] = _stems(word)
            stems += found
        return stems


def _stems(word: str) -> tuple[str, ...]:
    if not word.isascii() and _UNSPACED.search(word):
        return tuple(_pairs(word.casefold()))
    parts = (
        [part for piece in word.split("_") for part in _CAMEL.split(piece)]
        if not word.islower() or "_" in word
        else [word]
    )
    if len(parts) > 1:
        whole = word.casefold()
        return (whole, *(stem for part in parts if part for stem in _stems(part.casefold())))
    folded = word.casefold()
    if folded in _STOP:
        return ()
    stem = _stem(folded)
    is_inflected = len(folded) >= _MIN_INFLECTED_CHARS and not folded.isdigit()
    return (stem, f"{folded[:PREFIX_CHARS]}*") if is_inflected else (stem,)


def _pairs(word: str) -> list[str]:
    """Split a word into pairs of characters where its script has no spaces; other stretches stay whole."""
    parts = [part for part in _UNSPACED.split(word) if part]
    for run in _UNSPACED.findall(word):
        parts += [run[place : place + 2] for place in range(len(run) - 1)] or [run]
    return parts


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "es", "ed", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            stem = word[: -len(ending)]
            return stem[:-1] if len(stem) > 3 and stem[-1] in "ey" else stem
    return word[:-1] if len(word) > 4 and word[-1] in "ey" else word

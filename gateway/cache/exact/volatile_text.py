"""Volatile texts: those whose answer changes with the time or with the sender, in the languages with guards.

Code is left out: `now()` and `my.cnf` are the same for everyone at any time. Each sentence is read by itself, so that
`How do I pay?` makes nothing general of the question behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal

from gateway.cache.grammar.language_guards import GUARDS, LanguageGuards
from gateway.cache.grammar.lexicon import ENGLISH
from gateway.cache.grammar.word_lists import (
    CODE_WORDS,
    DATE_WORDS,
    GENERAL_BEGINNINGS,
    GENERAL_BEHIND,
    MINE_CERTAIN,
    MINE_PHRASES,
    MINE_WORDS,
    NEAR_WORDS,
    NOT_VOLATILE,
    NOW_PHRASES,
    NOW_WORDS,
    SPANS,
)
from gateway.cache.similarity.language import language_of, may_be_english
from gateway.cache.similarity.normal_form import normal_form

Volatility = Literal["time_dependent", "personal"]

_word: Final = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*").findall
_CODE: Final = re.compile(
    r"`[^\s`]+`|`[^`\n()=;{}_]*+[()=;{}_][^`\n]*+`|(?<![\w.])[\w.]+\(\)|\b[a-z]\w*(?:\.[a-z]\w*)+|(?<!\S)--?[a-z][\w-]*(?:=\S+)?"
)
"""Code in backticks, calls, names with dots, and flags."""
_SENTENCE: Final = re.compile(r"(?<=[.?!;:])\s+|\n").split
_NOW: Final = "now"
_NOW_AND_LATER: Final = frozenset({"from", "until", "till", "by"})
_CURRENT: Final = "current"
_WEATHER: Final = "weather"
_MAX_WEATHER: Final = 4
"""Words of a text that is a place with `weather` before or behind it."""
_QUESTION_WORDS: Final = frozenset({"what", "what's", "how", "why", "define", "explain", "describe"})
_AFTER_IN: Final = frozenset({"in", "with", "using"})
_PLACES: Final = frozenset({"java"})
"""Languages of programming that are places as well."""
_FEW_WORDS: Final = 6
_MEMORY: Final = 2048
"""Number of texts whose volatility is remembered: the exact tier sees most of them again."""


def _any_of(phrases: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(phrases, key=len, reverse=True)))


_NOT_VOLATILE: Final = re.compile(rf"\b(?:{_any_of(NOT_VOLATILE)})\b")
_NOW_PHRASES: Final = re.compile(rf"\b(?:{_any_of(NOW_PHRASES)})\b")
_MINE_PHRASES: Final = re.compile(rf"\b(?:{_any_of(MINE_PHRASES)}) ([\w'-]*)")
_MINE_CERTAIN: Final = re.compile(rf"\b(?:{_any_of(MINE_CERTAIN)})\b")
_GREETING: Final = r"(?:(?:please|hi|hello|hey|thanks|ok|okay|so|and|but|then) )*"
_GENERAL: Final = re.compile(rf"{_GREETING}(?:{_any_of(GENERAL_BEGINNINGS)})\b")
_TIME_ENDS: Final = re.compile(r"\bwhat(?: is|'s) the (?:time|date|day|year|month)$")


@lru_cache(maxsize=_MEMORY)
def volatility_of(text: str, sender: str = "") -> frozenset[Volatility]:
    """Return on what the answer to a text depends besides the text.

    Args:
        text: The text.
        sender: Those among whom results are remembered. Others' requests take as long as if the text was new, so that
            no time tells whether it was sent before.
    """
    plain = _CODE.sub(" ", text)
    text = plain if _word(plain) else text
    lowered = normal_form(text).lower()
    words = _word(lowered)
    if not words:
        return frozenset()
    guards = _guards_of(words)
    is_now = any(guard.is_time_dependent(words, lowered) for guard in guards)
    is_mine = any(guard.is_personal(words, lowered) for guard in guards)
    if may_be_english(words) or not (is_now and is_mine):
        for sentence in _sentences(text):
            is_now = is_now or _is_time_dependent(sentence)
            is_mine = is_mine or _is_personal(sentence)
    found: list[Volatility] = ["time_dependent"] if is_now else []
    return frozenset([*found, "personal"] if is_mine else found)


def _guards_of(words: Sequence[str]) -> list[LanguageGuards]:
    """Return the guards of the languages that a text may be of, besides the English ones.

    A few words are of any language that has no fewer of them than English: `was` and `die` are English, too.
    """
    if not may_be_english(words):
        language = language_of(words)
        return [GUARDS[language]] if language in GUARDS else []
    num_english = sum(word in ENGLISH for word in words)
    if not num_english:
        return list(GUARDS.values())
    if len(words) > _FEW_WORDS:
        return []
    return [guard for guard in GUARDS.values() if sum(word in guard.small for word in words) >= num_english]


def _sentences(text: str) -> Iterator[list[str]]:
    """Yield the lower-case words of each sentence, without phrases that only look volatile."""
    for sentence in _SENTENCE(text):
        words = _word(normal_form(sentence).lower().replace("’", "'"))
        joined = _NOT_VOLATILE.sub(",", " ".join(words))
        if "," in joined:
            words = joined.split()
        if words:
            yield words


def _is_time_dependent(words: Sequence[str]) -> bool:
    joined = " ".join(words)
    if _is_about_dates_in_code(words, joined):
        return False
    if not NOW_WORDS.isdisjoint(words) or _NOW_PHRASES.search(joined) or _TIME_ENDS.search(joined):
        return True
    if _NOW in words[1:] and words[words.index(_NOW, 1) - 1] not in _NOW_AND_LATER:
        return True
    if words[0] == _CURRENT and len(words) > 1:  # `current price of`; not `what is electric current`
        return True
    if len(words) <= _MAX_WEATHER and _WEATHER in (words[0], words[-1]) and words[0] not in _QUESTION_WORDS:
        return True
    spans = (second.rstrip("s").removesuffix("'") for first, second in pairwise(words) if first in NEAR_WORDS)
    return any(span in SPANS for span in spans)


def _is_about_dates_in_code(words: Sequence[str], joined: str) -> bool:
    """Return whether a text asks how code gets at the time: `today's date in Python`."""
    if DATE_WORDS.isdisjoint(words) or "time is it" in joined:
        return False
    if _GENERAL.match(joined):
        return not CODE_WORDS.isdisjoint(words)
    named = (second for first, second in pairwise(words) if first in _AFTER_IN)
    return any(word in CODE_WORDS and word not in _PLACES for word in named)


def _is_personal(words: Sequence[str]) -> bool:
    joined = " ".join(words)
    if _MINE_CERTAIN.search(joined):
        return True
    if _GENERAL.match(joined):
        return False
    if not MINE_WORDS.isdisjoint(words):
        return True
    return any(found.group(1) not in GENERAL_BEHIND for found in _MINE_PHRASES.finditer(f"{joined} "))

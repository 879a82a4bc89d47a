"""Volatile questions: those whose answer changes with the time or with the person, in the languages with guards.

The exact tier serves equal questions only, so the rules are narrow: `how do I cancel my order` has one answer, but
`where is my order` has one for each user. Of a long text only its first and its last line count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal

from gateway.cache.exact.fingerprint import last_user_text
from gateway.cache.grammar.language_guards import GUARDS
from gateway.cache.grammar.word_lists import (
    GENERAL_BEGINNINGS,
    GENERAL_BEHIND,
    MINE_PHRASES,
    MINE_WORDS,
    NEAR_WORDS,
    NOW_PHRASES,
    NOW_WORDS,
    SPANS,
)
from gateway.cache.similarity.language import ENGLISH_NAME, language_of
from gateway.cache.similarity.lexicon import ENGLISH
from gateway.cache.similarity.normal_form import normal_form
from gateway.chat.operation import CHAT, COMPLETIONS
from gateway.chat.request import ChatRequest
from routing_policies.policy.document import Cache, CacheScope

Volatility = Literal["time_dependent", "personal"]

MAX_READ: Final = 600
"""Longest text that is read as a whole, in characters."""
_MAX_LINE: Final = 300
_word: Final = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*").findall
_NOW: Final = "now"
_MEMORY: Final = 2048
"""Number of texts whose volatility is remembered: the exact tier sees most of them again."""


def _any_of(phrases: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(phrases, key=len, reverse=True)))


_NOW_PHRASES: Final = re.compile(rf"\b(?:{_any_of(NOW_PHRASES)})\b")
_MINE_PHRASES: Final = re.compile(rf"\b(?:{_any_of(MINE_PHRASES)}) ([\w'-]*)")
_GENERAL: Final = re.compile(rf"(?:please )?(?:{_any_of(GENERAL_BEGINNINGS)})\b")


def volatile_reason(request: ChatRequest, rule: Cache) -> Volatility | None:
    """Return why this request gets no cached response and makes none, or None."""
    if rule.scope == "user":
        return None
    found = volatility(request)
    if "time_dependent" in found and rule.time_dependent == "bypass":
        return "time_dependent"
    if "personal" in found and (rule.personal == "bypass" or not request.fields.user):
        return "personal"
    return None


def owner_of(request: ChatRequest, rule: Cache) -> CacheScope:
    """Return who may share the response to this request: the rule's scope, or the user for a personal question."""
    return "user" if rule.personal == "per_user" and "personal" in volatility(request) else rule.scope


def volatility(request: ChatRequest) -> frozenset[Volatility]:
    """Return on what the answer to a request depends besides its content."""
    if request.operation is CHAT:
        text = last_user_text(request)
    else:
        prompt = request.document.get("prompt") if request.operation is COMPLETIONS else None
        text = prompt if isinstance(prompt, str) else None
    return frozenset() if text is None else volatility_of(_part_read(text))


@lru_cache(maxsize=_MEMORY)
def volatility_of(text: str) -> frozenset[Volatility]:
    """Return on what the answer to a text depends besides the text; pure, microseconds."""
    text = normal_form(text).lower()
    words = _word(text)
    if not words:
        return frozenset()
    language = language_of(words)
    if language == ENGLISH_NAME and not ENGLISH.isdisjoint(words):
        is_now, is_mine = _is_time_dependent(words), _is_personal(words)
    else:  # a few words without any small English one may be of any language
        guards = [GUARDS[language]] if language in GUARDS else list(GUARDS.values()) if language == ENGLISH_NAME else []
        is_now = any(guard.is_time_dependent(words, text) for guard in guards) or _is_time_dependent(words)
        is_mine = any(guard.is_personal(words, text) for guard in guards) or _is_personal(words)
    found: list[Volatility] = ["time_dependent"] if is_now else []
    return frozenset([*found, "personal"] if is_mine else found)


def _part_read(text: str) -> str:
    """Return the text, or of a long one its first and its last line."""
    if len(text) <= MAX_READ:
        return text
    head, tail = text[:_MAX_LINE].lstrip(), text[-_MAX_LINE:].rstrip()
    return f"{head.partition(chr(10))[0]} {tail.rpartition(chr(10))[2]}"


def _is_time_dependent(words: Sequence[str]) -> bool:
    if not NOW_WORDS.isdisjoint(words) or _NOW_PHRASES.search(" ".join(words)):
        return True
    if _NOW in words[1:] and words[words.index(_NOW, 1) - 1] not in ("from", "until", "till", "by"):
        return True
    if words[0] == "current" and len(words) > 1:  # `current price of`; not `what is electric current`
        return True
    spans = (second.rstrip("s").removesuffix("'") for first, second in pairwise(words) if first in NEAR_WORDS)
    return any(span in SPANS for span in spans)


def _is_personal(words: Sequence[str]) -> bool:
    if _GENERAL.match(" ".join(words)):
        return False
    if not MINE_WORDS.isdisjoint(words):
        return True
    return any(found.group(1) not in GENERAL_BEHIND for found in _MINE_PHRASES.finditer(f"{' '.join(words)} "))

"""Guards: requests whose response must not answer similar questions. Pure, microseconds."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from gateway.cache.exact.fingerprint import last_user_text
from gateway.cache.exact.volatile import owner_of, sender_of
from gateway.cache.exact.volatile_text import volatility_of
from gateway.cache.similarity.language import may_be_english
from gateway.cache.similarity.standalone import MAX_CHARS
from gateway.cache.similarity.suspicion import is_suspicious
from gateway.chat.request import ChatRequest
from gateway.chat.schema import AssistantMessage, FunctionMessage, ToolMessage
from gateway.telemetry.records.cache_reasons import GuardReason
from routing_policies.policy.document import Cache

MIN_WORDS: Final = 3
MIN_CHARS: Final = 6
"""Least length of a text in a script that writes no spaces between words, in characters."""
DEFAULT_TEMPERATURE: Final = 1.0
"""Temperature of a request that names none, as in OpenAI's API."""

_word: Final = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*").findall

_DAYS: Final = frozenset(
    day + end
    for day in ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    for end in ("", "s", "'s")
)
_NOW: Final = _DAYS | frozenset(
    (
        *("today", "today's", "tonight", "tonight's", "tomorrow", "tomorrow's", "yesterday", "yesterday's", "ago"),
        *("now", "nowadays", "currently", "current", "present", "presently", "latest", "newest", "recent", "recently"),
        *("lately", "up-to-date", "upcoming", "ongoing", "breaking", "headline", "headlines", "news", "weather"),
        *("forecast", "forecasts", "price", "prices", "stock", "stocks", "score", "scores", "standings", "still"),
        *("anymore", "live", "trending", "deadline", "deadlines", "schedule"),
    )
)
_NEAR: Final = frozenset({"this", "last", "next", "past", "coming", "previous", "every"})
_SPANS: Final = frozenset(
    span + end
    for span in (
        *("hour", "day", "week", "weekend", "month", "quarter", "year", "decade", "season"),
        *("morning", "afternoon", "evening", "night", "time"),
    )
    for end in ("", "s", "'s")
)
_PHRASES: Final = (
    *(("so", "far"), ("as", "of"), ("to", "date"), ("at", "present"), ("at", "the", "moment"), ("up", "to", "date")),
    *(("how", "old"), ("what", "time"), ("any", "more"), ("no", "longer"), ("exchange", "rate"), ("exchange", "rates")),
    *(("temperature", "in"), ("temperature", "at"), ("temperature", "outside"), ("just", "been")),
)
_PHRASE_WORDS: Final = frozenset(phrase[0] for phrase in _PHRASES)

_MINE: Final = frozenset({"my", "mine", "myself", "our", "ours", "ourselves"})
_IMPERSONAL: Final = frozenset(
    (
        *("tell", "give", "show", "help", "let", "teach", "to", "remind", "send", "write"),
        *("telling", "giving", "showing", "helping", "teaching", "sending", "writing"),
    )
)
"""Words before `me` that make a request about nobody."""


def guard_of(request: ChatRequest, rule: Cache, tenant: str = "") -> GuardReason | None:
    """Return why the semantic tier leaves this request alone, or None when it may serve it."""
    fields = request.fields
    if fields.tools or "functions" in request.document or any(map(_is_of_tools, request.messages)):
        return "tools"
    temperature = DEFAULT_TEMPERATURE if fields.temperature is None else fields.temperature
    if temperature > rule.max_temperature:
        return "temperature"
    if fields.seed is not None:
        return "seed"
    if request.num_choices > 1:
        return "choices"
    if fields.logprobs or fields.top_logprobs:
        return "logprobs"
    text = last_user_text(request)
    if text is None:
        return "no_text"
    return text_guard(text, reused=_reused(request, rule, tenant), sender=sender_of(request, rule, tenant))


def _reused(request: ChatRequest, rule: Cache, tenant: str) -> frozenset[GuardReason]:
    """Return the guards that the route lifts: all in the user's own entries, else those that it names."""
    if rule.scope == "user":
        return frozenset({"time_dependent", "personal"})
    reused: list[GuardReason] = ["time_dependent"] if rule.time_dependent == "reuse" else []
    is_own = bool(request.fields.user) and owner_of(request, rule, tenant) == "user"
    return frozenset([*reused, "personal"] if is_own else reused)


def text_guard(text: str, *, reused: frozenset[GuardReason] = frozenset(), sender: str = "") -> GuardReason | None:
    """Return why the semantic tier leaves a last user text alone, or None.

    Guards in `reused` are lifted; `sender` is that of `volatility_of`.
    """
    if len(text) > MAX_CHARS:
        return "too_long"
    if is_suspicious(text):
        return "suspicious"
    words = _word(text.lower().replace("’", "'"))
    if not words or (len(words) < MIN_WORDS and (text.isascii() or len(text) < MIN_CHARS)):
        return "too_short"
    volatile = volatility_of(text, sender)
    is_english = may_be_english(words)
    is_now = "time_dependent" in volatile or (is_english and _is_now(words))
    if is_now and "time_dependent" not in reused:
        return "time_dependent"
    is_personal = "personal" in volatile or (is_english and _is_personal(words))
    return "personal" if is_personal and "personal" not in reused else None


def _is_now(words: list[str]) -> bool:
    return not _NOW.isdisjoint(words) or _has_phrase(words)


def _has_phrase(words: list[str]) -> bool:
    if not _NEAR.isdisjoint(words) and any(first in _NEAR and second in _SPANS for first, second in pairwise(words)):
        return True
    if _PHRASE_WORDS.isdisjoint(words):
        return False
    return any(
        tuple(words[at : at + len(phrase)]) == phrase
        for phrase in _PHRASES
        for at, word in enumerate(words)
        if word == phrase[0]
    )


def _is_personal(words: list[str]) -> bool:
    if not _MINE.isdisjoint(words) or words[0] == "me":
        return True
    return "me" in words and any(second == "me" and first not in _IMPERSONAL for first, second in pairwise(words))


def _is_of_tools(message: object) -> bool:
    """Return whether a message belongs to tools, or to `functions`, their older spelling."""
    if isinstance(message, AssistantMessage):
        return bool(message.tool_calls) or message.function_call is not None
    return isinstance(message, ToolMessage | FunctionMessage)

"""Single facts read from an answer: its usage, whether it has text; and the timing that is added to it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from gateway.completion.stated_errors import document_of
from gateway.telemetry.records.record import Usage

_FIRST_TOKEN: Final = re.compile(
    rb'"(?:content|reasoning_content|reasoning|refusal)"\s*:\s*"[^"]|"tool_calls"\s*:\s*\[|"text"\s*:\s*"[^"]'
)
_USAGE: Final = b'"usage"'


_NumTokens = Annotated[int, Meta(ge=0, le=1_000_000_000)]
"""A figure beyond it is none: quotas, prices and forecasts would be spoilt by it for hours."""


class _TokenDetails(msgspec.Struct, frozen=True):
    cached_tokens: _NumTokens | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: _NumTokens
    completion_tokens: _NumTokens | None = 0
    prompt_tokens_details: _TokenDetails | None = None


class _Answer(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


def has_first_token(piece: bytes) -> bool:
    """Whether `piece` carries text or a tool call; a role-only delta and a comment do not count."""
    return _FIRST_TOKEN.search(piece) is not None


def usage_of(answer: bytes) -> Usage | None:
    """The usage of one JSON answer or event, wherever it stands; None when there is none or it is not what it should
    be."""
    try:
        usage = _decode_answer(answer).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        usage = None
    if usage is not None:
        details = usage.prompt_tokens_details
        cached = None if details is None else details.cached_tokens
        return Usage(usage.prompt_tokens, usage.completion_tokens or 0, cached)
    return usage_in(document_of(answer)) if _USAGE in answer else None


def usage_in(document: Any) -> Usage | None:
    """The usage in a decoded answer or event: its own, or that of a choice or of `x_groq`, as some servers send it."""
    if not isinstance(document, dict):
        return None
    choices = document.get("choices")
    holders = (document, document.get("x_groq"), *(choices[:1] if isinstance(choices, list) else ()))
    for holder in holders:
        usage = _usage(holder.get("usage")) if isinstance(holder, dict) else None
        if usage is not None:
            return usage
    return None


def _usage(told: Any) -> Usage | None:
    if not isinstance(told, dict):
        return None
    prompt, completion = _count(told.get("prompt_tokens")), _count(told.get("completion_tokens"))
    if prompt is None:
        return None
    details = told.get("prompt_tokens_details")
    return Usage(prompt, completion or 0, _count(details.get("cached_tokens")) if isinstance(details, dict) else None)


def _count(told: Any) -> int | None:
    if isinstance(told, float) and told.is_integer():
        told = int(told)
    return told if isinstance(told, int) and not isinstance(told, bool) and told >= 0 else None


def merge_timing(answer: bytes, timing: dict[str, float]) -> bytes:
    """`answer` (a JSON object) with the gateway's stages added under `penstock.timing.gateway`, else unchanged."""
    try:
        document: Any = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return answer
    if not isinstance(document, dict):
        return answer
    extension = document.get("penstock")
    extension = dict(extension) if isinstance(extension, dict) else {}
    stages = extension.get("timing")
    extension["timing"] = {**(stages if isinstance(stages, dict) else {}), "gateway": timing}
    document["penstock"] = extension
    return msgspec.json.encode(document)

"""Near misses: a similar response that may not be served, as a draft that the model confirms or changes."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.cache.semantic.semantic_tier import SemanticResult
from routing_policies.policy.document import Cache

MAX_ANSWER_BYTES: Final = 64 * 1024
"""Size of a response beyond which it is no draft: decoding it would hold the event loop up."""


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message


class _Answer(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...]


_decode: Final = msgspec.json.Decoder(_Answer).decode


def draft_of(finding: SemanticResult | None, cache: Cache) -> str | None:
    """Return the text of a response that was not served, if its match probability is high enough for a draft.

    Args:
        finding: Result of the lookup; None where nothing was looked up.
        cache: The route's rules.
    """
    if finding is None or finding.is_hit or finding.entry is None or cache.draft_threshold is None:
        return None
    if finding.match_probability < cache.draft_threshold or len(finding.entry.answer) > MAX_ANSWER_BYTES:
        return None
    try:
        choices = _decode(finding.entry.answer).choices
    except msgspec.DecodeError:  # content of another form, which no model writes as text
        return None
    return (choices[0].message.content or None) if choices else None

"""Question: what a conversation ends with, as weighted words and as a text for the encoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from gateway.trimming.relevance.words import Words

MAX_QUESTION_CHARS: Final = 1200
"""Characters of a question that count; of a longer one, its beginning and its end."""
_FEW_WORDS: Final = 4
"""Number of words below which a question leans on the one before it."""
_BEFORE_WEIGHT: Final = 0.15
_LEANING_WEIGHT: Final = 0.5
_FIELD_WEIGHT: Final = 0.5
_MAX_FIELDS: Final = 200


class Question(msgspec.Struct, frozen=True):
    """The question that a conversation ends with."""

    text: str
    weights: Mapping[str, float]
    """Weight of each stem."""


def question_of(text: str, before: str = "", fields: Iterable[str] = ()) -> Question:
    """Return the question of a conversation.

    Args:
        text: Text of the last user message that asks or instructs.
        before: Text of the user message before it, which a short question leans on.
        fields: Names that the answer needs, such as the members of a schema.
    """
    words = Words()
    text, before = _shortened(text), _shortened(before)
    own = dict.fromkeys(words.of(text), 1.0)
    num_own = sum(not word.endswith("*") for word in own)
    weight = _LEANING_WEIGHT if num_own < _FEW_WORDS else _BEFORE_WEIGHT
    earlier = dict.fromkeys(words.of(before), weight)
    named = dict.fromkeys((stem for field in fields for stem in words.of(field)), _FIELD_WEIGHT)
    return Question(text.strip() or before.strip(), {**earlier, **named, **own})


def fields_of(response_format: object) -> list[str]:
    """Return the names and descriptions of the members that a `response_format` or a schema in it requires."""
    found: list[str] = []
    pending: list[Any] = [response_format]
    while pending and len(found) < _MAX_FIELDS:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            properties = node.get("properties")
            if isinstance(properties, dict):
                found += [str(name) for name in properties]
            description = node.get("description")
            if isinstance(description, str):
                found.append(description[:MAX_QUESTION_CHARS])
            pending += [value for value in node.values() if isinstance(value, dict | list)]
    return found[:_MAX_FIELDS]


def _shortened(text: str) -> str:
    if len(text) <= MAX_QUESTION_CHARS:
        return text
    half = MAX_QUESTION_CHARS // 2
    return f"{text[:half]} {text[-half:]}"

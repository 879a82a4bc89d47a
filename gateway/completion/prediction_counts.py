"""Counts of a prediction's tokens in the usage of an answer, and their removal for clients that sent no prediction."""

from __future__ import annotations

from typing import Any, Final

from gateway.chat.json_members import encoded
from gateway.completion.answer_json import document_of

MARK: Final = b'_prediction_tokens"'
"""Text of every answer that has such counts."""
_COUNTS: Final = ("accepted_prediction_tokens", "rejected_prediction_tokens")
_DETAILS: Final = "completion_tokens_details"


def without_prediction_counts(answer: bytes) -> bytes:
    """Return one JSON answer or event without the counts; other input unchanged."""
    if MARK not in answer:
        return answer
    document: Any = document_of(answer)
    usage = document.get("usage") if isinstance(document, dict) else None
    if not isinstance(usage, dict) or not isinstance(details := usage.get(_DETAILS), dict):
        return answer
    for name in _COUNTS:
        details.pop(name, None)
    if not details:
        usage.pop(_DETAILS)
    return encoded(document)

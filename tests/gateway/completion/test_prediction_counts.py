"""The counts of a prediction leave an answer without a trace; all else stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.completion.prediction_counts import without_prediction_counts

COUNTS = {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 1}


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"completion_tokens_details": COUNTS}, {}),
        (
            {"completion_tokens_details": {"reasoning_tokens": 2, **COUNTS}},
            {"completion_tokens_details": {"reasoning_tokens": 2}},
        ),
    ],
)
def test_counts_are_removed(details: dict[str, Any], expected: dict[str, Any]) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 4}
    answer = {"id": "a", "choices": [], "usage": {**usage, **details}}
    found = json.loads(without_prediction_counts(json.dumps(answer).encode()))
    assert found == {"id": "a", "choices": [], "usage": {**usage, **expected}}


@pytest.mark.parametrize(
    "answer",
    [
        b'{"usage": {"prompt_tokens": 7}}',
        b'{"choices":[{"message":{"content":"\\"accepted_prediction_tokens\\""}}]}',
        b'["accepted_prediction_tokens"]',
        b'{"usage": null, "x": "accepted_prediction_tokens"}',
        b'broken "accepted_prediction_tokens"',
        b"",
    ],
)
def test_all_else_stays_byte_for_byte(answer: bytes) -> None:
    assert without_prediction_counts(answer) == answer

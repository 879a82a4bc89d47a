"""Answers compared: by words, by numbers, by the encoder, by an auditor."""

from __future__ import annotations

import json

import pytest

from gateway.cache.audit.comparison import auditor_document, auditor_verdict, is_equivalent, text_of, verdict_of
from tests.gateway.cache.similar_stack import completion


@pytest.mark.parametrize(
    ("stored", "fresh", "expected"),
    [
        ("It is 10 km.", "it is  10 km", True),
        ("It is 10 km.", "It is 100 km.", False),
        ("It is 3.5 km.", "It is 35 km.", False),
        ("Press the button.", "Use the button.", None),
        ("Take 10 mg of it.", "Of that, take 10 mg.", True),
        ("It may take a minute.", "It cannot take a minute.", None),
    ],
)
def test_answers_are_compared_by_words_then_by_numbers(stored: str, fresh: str, expected: bool | None) -> None:
    assert is_equivalent(stored, fresh) is expected


def test_what_the_encoder_cannot_report_is_unknown() -> None:
    assert [verdict_of(value) for value in (None, 0.95, 0.5)] == ["unknown", "right", "unknown"]
    assert verdict_of(0.1, "Open the settings page.", "Mix flour with eggs.") == "wrong"
    assert verdict_of(0.1, "It is.", "Yes, come in.") == "unknown", "too short for a vector"
    assert verdict_of(0.95, "It takes 10 minutes in all.", "In all it takes 20 minutes.") == "wrong"
    assert verdict_of(0.95, "You can delete it later.", "You cannot delete it later.") == "unknown"


def test_only_plain_texts_are_compared() -> None:
    assert text_of(completion("hello")) == "hello"
    assert text_of(b'{"choices": []}') is None
    assert text_of(b"nonsense") is None
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "x", "tool_calls": [call]}
    assert text_of(json.dumps({"choices": [{"message": message}]}).encode()) is None


@pytest.mark.parametrize(
    ("reported", "expected"),
    [("Yes.", True), ("no", False), (" NO, they differ", False), ("perhaps", None), ("", None)],
)
def test_a_auditor_states_yes_or_no(reported: str, expected: bool | None) -> None:
    assert auditor_verdict(completion(reported)) is expected
    assert auditor_verdict(None) is None
    assert auditor_document("q", "a", "b")["temperature"] == 0

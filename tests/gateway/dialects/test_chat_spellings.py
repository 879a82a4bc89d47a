"""Content and arguments in other spellings are the same text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.dialects.chat_spellings import arguments_text, content_text, in_usual_spelling


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, ""),
        ("plain", "plain"),
        ([{"type": "text", "text": "north "}, {"type": "text", "text": "pier"}], "north pier"),
        (["north ", {"type": "text", "text": "pier"}], "north pier"),
        ({"type": "text", "text": "one part"}, "one part"),
        ([{"type": "image_url", "image_url": {"url": "https://a"}}, {"type": "text", "text": None}, 7], ""),
        ([], ""),
    ],
)
def test_the_text_of_content(content: Any, expected: str) -> None:
    assert content_text(content) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(None, ""), ("", ""), ('{"a": 1}', '{"a": 1}'), ({"a": 1}, '{"a":1}'), ({}, "{}"), ([2], "[2]"), (0, "0")],
)
def test_the_text_of_arguments(arguments: Any, expected: str) -> None:
    assert arguments_text(arguments) == expected


def test_an_integer_beyond_64_bits_is_written() -> None:
    assert json.loads(arguments_text({"n": 1 << 80})) == {"n": 1 << 80}


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"choices": None},
        {"choices": [None, {}, {"delta": 3}]},
        {"choices": [{"delta": {"tool_calls": [1]}}]},
    ],
)
def test_what_is_no_event_stays(document: Any) -> None:
    before = repr(document)
    assert repr(in_usual_spelling(document)) == before

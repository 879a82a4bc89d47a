"""Texts that a reader and an encoder would see differently."""

from __future__ import annotations

import pytest

from gateway.cache.similarity.suspicion import is_suspicious


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("neutral", "How do I oil a lock?", False),
        ("neutral: accents", "Où est la café de Zoë?", False),
        ("neutral: two scripts apart", "What does это mean?", False),
        ("zero width", "How do I oil\u200b a lock?", True),
        ("turned direction", "\u202eHow do I oil a lock?", True),
        ("two scripts in a word", "How do I \u043eil a lock?", True),
        ("full width", "Ｈｏｗ do I oil a lock?", True),
        ("a tower of marks", "o\u0301\u0301\u0301il a lock", True),
        ("a control", "oil a\x07 lock", True),
        ("tokens that nobody writes", "oil similarlyNow Me(giving ]({{ a lock", True),
    ],
)
def test_disguises_are_seen(name: str, text: str, expected: bool) -> None:
    assert is_suspicious(text) is expected, name

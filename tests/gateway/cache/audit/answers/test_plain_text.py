"""Formatting of answers is no part of what they state."""

from __future__ import annotations

import pytest

from gateway.cache.audit.answers.plain_text import plain_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# Title\n\n**bold** and `code`", "Title bold and code"),
        ("1. Open it\n2. Press 3 keys\n3. Wait", "Open it Press 3 keys Wait"),
        ("1) one thing 2) another thing", "one thing another thing"),
        ("It was 1998. 2. place went to him", "It was 1998. 2. place went to him"),
        ("* a\n  - b\n> c", "a b c"),
        ("Step 1: open. Step two - close.", "open. close."),
        ("First, open. Secondly, close.", ", open. , close."),
        ("| a | b |\n|---|:--|\n| 1 | 2 |", "a b 1 2"),
        ("See [the page](http://x.y/z) [1]", "See the page"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("snake_case stays, _this_ does not", "snake_case stays, this does not"),
        ("", ""),
    ],
)
def test_formatting_goes_and_words_stay(text: str, expected: str) -> None:
    assert " ".join(plain_text(text).split()) == expected

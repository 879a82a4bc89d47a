"""Text without redundant bytes: compact JSON, narrow gaps, and code as it was written."""

from __future__ import annotations

import json

import pytest

from gateway.trimming.conversation import Conversation
from gateway.trimming.minify import minify, minify_text


def test_spread_out_json_becomes_compact_and_stays_the_same_document() -> None:
    document = {"items": [{"name": "a b", "price": 1.50, "tags": ["x", 'quote " and \\ slash']}] * 5}
    compact = minify_text(json.dumps(document, indent=4))
    assert json.loads(compact) == document
    assert len(compact) < len(json.dumps(document, indent=4)) / 1.5


def test_numbers_in_json_keep_their_spelling() -> None:
    text = '{ "amount":  1.50,   "big": 12345678901234567890123,' + ' "pad": "' + "x" * 60 + '" }'
    assert '"amount":1.50,"big":12345678901234567890123' in minify_text(text)


def test_white_space_goes_and_code_stays() -> None:
    code = "```python\ndef f():\n    return   1   \n\n\n\n```"
    text = f"Hello   \n\n\n\n\nworld\n{code}\nBye.      See you."
    assert minify_text(text) == f"Hello\n\nworld\n{code}\nBye.  See you."


@pytest.mark.parametrize(
    "code",
    [
        "```python\nx   =   1   \n\n\n\ny = 2",
        "1. Like this:\n\n   ```python\n   x   =   1   \n   ```",
        "````md\n```\nx   =   1   \n```\n\n\n\n````",
        "~~~\nx   =   1   \n~~~~",
        "```\r\nx   =   1   \r\n```",
    ],
    ids=["never closed", "in a list", "around another fence", "tildes", "CRLF"],
)
def test_code_stays_however_it_is_fenced(code: str) -> None:
    assert minify_text(f"See:\n{code}") == f"See:\n{code}"


def test_what_stands_behind_a_fence_is_text_again() -> None:
    assert minify_text("```\na.   B\n```\na.   B\nx `y   z`   z") == "```\na.   B\n```\na.   B\nx `y   z`   z"
    assert minify_text("```\na.   B\n```\na.   B\nx `y.   Z` z") == "```\na.   B\n```\na.  B\nx `y.   Z` z"


@pytest.mark.parametrize(
    "text",
    [
        'He said "wait   for   it" and left.',
        "Use `a   b` here.",
        "name\tage\nAnna\t33",
        "| a   | b   |\n|-----|-----|\n| 1   | 2   |",
        "name     age\nAnna     33\nBoris    41",
        "+   added\n-   removed\n@@ -1   +1 @@",
        "First line  \nsecond line",
        "Steps:\n\n    x   =   1\n\n\n\n    y   =   2",
        "    indented   code   ",
        'One "quote\nover   two\n\n\n\nlines" ends.',
        "「a   b」 c",
        "bye      now",
        "Name:      Anna",
        "Total      33 EUR",
        "Item no.   Name   Price",
        "Yes.   Anna   33",
    ],
    ids=lambda text: text[:18],
)
def test_white_space_with_a_meaning_stays(text: str) -> None:
    assert minify_text(text) == text


def test_only_earlier_messages_that_do_not_instruct_are_minified() -> None:
    wide = "One.      Two.\n\n\n\nThree."
    messages = [{"role": role, "content": wide} for role in ("system", "user", "assistant", "developer", "user")]
    after = [message["content"] for message in minify(Conversation(messages)).messages]
    narrow = "One.  Two.\n\nThree."
    assert after == [wide, narrow, narrow, wide, wide]

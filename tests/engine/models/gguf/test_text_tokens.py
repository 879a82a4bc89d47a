"""Which user-defined tokens are plain text, and the expression that finds them."""

from __future__ import annotations

import re

import pytest

from engine.models.gguf.text_tokens import is_plain_text, split_pattern


@pytest.mark.parametrize("token", ["\n", "  ", "\t\t\t", "<b>", "</table>", "<h1>"])
def test_white_space_and_html_tags_are_plain_text(token: str) -> None:
    assert is_plain_text(token)


@pytest.mark.parametrize("token", ["", "<start_of_image>", "<think>", "<|im_end|>", "[multimodal]", "word", " a"])
def test_markup_and_words_are_not(token: str) -> None:
    assert not is_plain_text(token)


def test_the_longest_token_matches() -> None:
    pattern = split_pattern(["▁▁", "▁▁▁", "\n", "\n\n\n", "<b>", "</b>"])

    assert re.findall(pattern, "▁▁▁▁▁a▁\n\n\n\n\n<b>x</b>") == ["▁▁▁", "▁▁", "\n\n\n", "\n", "\n", "<b>", "</b>"]


def test_no_tokens_give_no_pattern() -> None:
    assert split_pattern([]) == ""

"""Splits of the pre-tokenizers: their expressions compile, and a few words show how they differ."""

from __future__ import annotations

import pytest
from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split

from engine.models.gguf.pre_tokenizers import PRE_TOKENIZERS


def words(name: str, text: str) -> list[str]:
    splits = Sequence([Split(Regex(pattern), "isolated") for pattern in PRE_TOKENIZERS[name].patterns])
    return [word for word, _ in splits.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_no_character_is_lost(name: str) -> None:
    text = "It's  1234 Ωμέγα!\n\n 日本 x_y\t€5"

    assert "".join(words(name, text)) == text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", ["We", "'", "LL", " see", "  ", " 12345", "!!"]),
        ("smollm", ["We", "'", "LL", " see", "   ", *"12345", "!!"]),
        ("llama-bpe", ["We", "'LL", " see", "  ", " ", "123", "45", "!!"]),
        ("qwen2", ["We", "'LL", " see", "  ", " ", *"12345", "!!"]),
        ("default", ["We", "'", "LL", " see", "  ", " ", "123", "45", "!!"]),
        ("tekken", ["We", "'LL", " see", "  ", " ", *"12345", "!!"]),
        ("gpt-4o", ["We'LL", " see", "  ", " ", "123", "45", "!!"]),
        ("deepseek-v3", ["We", "'LL", " see", "   ", "123", "45", "!!"]),
    ],
)
def test_words_digits_and_spaces(name: str, expected: list[str]) -> None:
    assert words(name, "We'LL see   12345!!") == expected

"""Words that deny, restrict or except: listed ones, pairs, and those that are built so."""

from __future__ import annotations

import pytest

from gateway.cache.similarity.denials import exception_of, exceptions_in


@pytest.mark.parametrize("word", ["only", "unless", "unavailable", "unwanted", "nonrefundable", "wireless", "harmless"])
def test_a_word_that_denies_is_an_exception_listed_or_built(word: str) -> None:
    assert exception_of(word)


@pytest.mark.parametrize(
    "word", ["under", "until", "unit", "uniform", "bless", "nonetheless", "nevertheless", "regardless", "understand"]
)
def test_a_word_that_only_checks_like_one_is_none(word: str) -> None:
    assert not exception_of(word)


@pytest.mark.parametrize(
    ("text", "ways"),
    [
        ("any city other than paris", ["but"]),
        ("apart from the first and free of charge", ["but", "but"]),
        ("how far from paris is it", []),
        ("far from paris", ["but"]),
        ("even if it rains", ["even"]),
        ("than other", []),
        ("save for later", ["but"]),
        ("", []),
    ],
)
def test_pairs_leave_something_out_unless_they_measure(text: str, ways: list[str]) -> None:
    assert exceptions_in(text.split()) == ways


def test_words_that_narrow_in_one_way_are_one_kind() -> None:
    assert exception_of("only") == exception_of("solely")
    assert exception_of("only") != exception_of("non") != exception_of("rarely")

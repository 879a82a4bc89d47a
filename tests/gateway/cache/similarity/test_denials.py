"""Words that deny, restrict or except: listed ones, pairs, and those that are built so."""

from __future__ import annotations

import pytest

from gateway.cache.similarity.denials import is_exception, num_excepted


@pytest.mark.parametrize("word", ["only", "unless", "unavailable", "unwanted", "nonrefundable", "wireless", "harmless"])
def test_a_word_that_denies_is_an_exception_listed_or_built(word: str) -> None:
    assert is_exception(word)


@pytest.mark.parametrize(
    "word", ["under", "until", "unit", "uniform", "bless", "nonetheless", "nevertheless", "regardless", "understand"]
)
def test_a_word_that_only_checks_like_one_is_none(word: str) -> None:
    assert not is_exception(word)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("any city other than paris", 1),
        ("apart from the first and free of charge", 2),
        ("how far from paris is it", 0),
        ("far from paris", 1),
        ("than other", 0),
        ("save for later", 1),
        ("", 0),
    ],
)
def test_pairs_leave_something_out_unless_they_measure(text: str, count: int) -> None:
    assert num_excepted(text.split()) == count

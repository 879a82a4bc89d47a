"""Words that are known, and words that are built of known ones."""

from __future__ import annotations

import pytest

from gateway.cache.grammar.vocabulary import is_known, ranks


@pytest.mark.parametrize("word", ["what", "chats", "browsing", "unblock", "python", "numpy", "ab"])
def test_words_and_their_forms_are_known(word: str) -> None:
    assert is_known(word)


@pytest.mark.parametrize("word", ["waht", "captial", "governmnet", "qwzx"])
def test_misspelt_words_are_not(word: str) -> None:
    assert not is_known(word)


def test_frequent_words_come_first() -> None:
    assert ranks()["the"] < ranks()["with"] < ranks()["salamanca"]


def test_a_doubled_letter_before_a_plain_ending_is_no_form() -> None:
    assert not any(map(is_known, ("handds", "leadds", "rulees", "poounds")))
    assert all(map(is_known, ("running", "stopped", "boxes", "potatoes", "baker")))

"""Word lists of grammar are whole and in lower case."""

from __future__ import annotations

from gateway.cache.grammar import word_lists


def test_every_list_has_words_in_lower_case() -> None:
    lists = [value for name, value in vars(word_lists).items() if name.isupper() and not name.startswith("_")]
    assert len(lists) >= 9
    assert all(words and all(word == word.lower() for word in words) for words in lists)


def test_modals_of_two_words_are_read_as_such() -> None:
    assert word_lists.MODALS["have to"] == word_lists.MODALS["must"] == "necessity"
    assert word_lists.PERSONS["me"] == "i"

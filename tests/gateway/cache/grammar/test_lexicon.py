"""The lists of words are whole and in lower case."""

from __future__ import annotations

from gateway.cache.grammar import lexicon


def test_every_list_has_words_in_lower_case() -> None:
    lists = {
        name: value for name, value in vars(lexicon).items() if isinstance(value, frozenset) and name != "OPPOSITES"
    }
    assert len(lists) > 10
    for name, words in lists.items():
        assert words, name
        assert all(word == word.lower() for word in words), name


def test_units_go_by_their_first_name() -> None:
    assert {lexicon.UNITS[name] for name in ("kg", "kilogram", "kilos")} == {"kg"}
    assert set(lexicon.UNITS) | {"b"} > lexicon.UNITS_AFTER_NUMBERS


def test_words_of_one_line_mean_the_same() -> None:
    groups = lexicon.SYNONYM_FORMS
    assert groups["quick"] & groups["fast"]
    assert not groups["quick"] & groups["small"]

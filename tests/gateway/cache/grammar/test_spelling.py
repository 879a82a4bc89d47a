"""Slips of the hand, and words that only look like one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cache.grammar import spelling
from gateway.cache.grammar.spelling import are_one_word, corrected, slip_between


@pytest.mark.parametrize(
    ("one", "other", "slip"),
    [
        ("water", "wtaer", "exchanged"),
        ("water", "waer", "added"),
        ("water", "waater", "added"),
        ("water", "wster", "beside"),
        ("water", "wpter", "other"),
        ("water", "water", None),
        ("water", "wtare", None),
        ("water", "later", "other"),
    ],
)
def test_a_slip_is_named(one: str, other: str, slip: str | None) -> None:
    assert slip_between(one, other) == slip
    assert slip_between(other, one) == slip


@pytest.mark.parametrize(
    ("one", "other"),
    [("what", "waht"), ("capital", "captial"), ("government", "goverment"), ("received", "recieved"), ("some", "sime")],
)
def test_a_misspelt_word_is_the_word(one: str, other: str) -> None:
    assert are_one_word(one, other)
    assert are_one_word(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("iran", "iraq"),
        ("affect", "effect"),
        ("nitrate", "nitrite"),
        ("hostels", "hotels"),
        ("unblock", "unlock"),
        ("halvorsen", "halvorson"),
        ("grep", "grip"),
        ("kettles", "kettle"),
        ("methane", "ethane"),
    ],
)
def test_two_words_stay_two(one: str, other: str) -> None:
    assert not are_one_word(one, other)
    assert not are_one_word(other, one)


def test_only_sure_slips_are_corrected_without_another_text() -> None:
    assert corrected("Where did the GOVERNMNET go, Buisness?") == "Where did the GOVERNMENT go, Business?"
    assert corrected("use `captial` or captial()") == "use `captial` or captial()"


def test_a_correction_is_looked_for_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: list[str] = []
    neighbours = spelling._neighbours

    def noted(word: str) -> list[str]:
        looked_for.append(word)
        return neighbours(word)

    monkeypatch.setattr(spelling, "_neighbours", noted)
    for _ in range(2):
        assert corrected("the Halvorsen file of the governmnet") == "the Halvorsen file of the government"
    assert sorted(looked_for) == ["governmnet", "governmnet", "halvorsen", "halvorsen"]


def test_without_a_vocabulary_nothing_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spelling, "ranks", dict)
    assert not are_one_word("what", "waht")


@given(st.text("abcdefgh", min_size=1, max_size=9), st.text("abcdefgh", min_size=1, max_size=9))
@settings(max_examples=300, deadline=None)
def test_slips_go_both_ways(one: str, other: str) -> None:
    assert slip_between(one, other) == slip_between(other, one)

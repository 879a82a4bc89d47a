"""Words that are known, and words that are built of known ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.cache.grammar import vocabulary
from gateway.cache.grammar.vocabulary import is_common, is_known, ranks


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


def test_a_form_is_taken_apart_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    taken_apart: list[str] = []
    bases = vocabulary._bases

    def noted(word: str) -> Iterator[str]:
        taken_apart.append(word)
        return bases(word)

    monkeypatch.setattr(vocabulary, "_bases", noted)
    assert [is_known(word) for word in ("zyxelers", "zyxelers", "chatters", "chatters")] == [False, False, True, True]
    assert taken_apart == ["zyxelers", "zyxelers", "chatters", "chatters"]


def test_words_of_the_vocabulary_and_of_two_letters_are_common() -> None:
    assert all(map(is_common, ("the", "salamanca", "numpy", "is", "a", "%", "")))
    assert not any(
        map(is_common, ("zyxela", "chatters", "don't", "zqx", "b7x1", "100", "\u738b\u660e", "\u738b\u5c0f\u660e"))
    )

"""English is given by its small words."""

from __future__ import annotations

import time

import pytest

from gateway.cache.similarity.language import UNGUARDED, is_english, language_of, languages_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("how do i oil a lock", True),
        ("porto braga lisbon", True),
        ("what does das haus mean in english", True),
        ("wie öle ich ein schloss", False),
        ("comment huiler une serrure sans outils", False),
    ],
)
def test_small_words_show_the_language(text: str, expected: bool) -> None:
    assert is_english(text.split()) is expected


def test_kana_show_japanese_in_linear_time() -> None:
    assert language_of(["这是安全的"]) == "chinese"
    assert language_of(["安全性確認の方法"]) == "japanese"
    begun = time.process_time()
    language_of(["这" * 20_000])
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize(
    ("text", "language", "may_be"),
    [
        ("how do i oil a lock", "english", {"english"}),
        ("höhe von porto", "german", {"german"}),
        ("wie schreef anna", "english", {"english", "german", "dutch"}),
        ("qual a altura da torre", UNGUARDED, {"italian", "portuguese"}),
        ("сколько весит цапля", "russian", {"russian"}),
        ("jak otworzyć beczkę", UNGUARDED, {UNGUARDED}),
        ("porto braga", "english", {"english"}),
    ],
)
def test_a_few_words_may_be_of_several_languages(text: str, language: str, may_be: set[str]) -> None:
    assert language_of(text.split()) == language
    assert languages_of(text.split()) == may_be

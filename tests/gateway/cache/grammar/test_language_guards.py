"""Guards of each language."""

from __future__ import annotations

import pytest

from gateway.cache.grammar.language_guards import GUARDS


def test_every_language_has_all_its_guards() -> None:
    assert len(GUARDS) >= 9
    for name, guards in GUARDS.items():
        assert guards.negations, name
        assert guards.now, name
        assert guards.mine, name


@pytest.mark.parametrize(
    ("language", "text", "count"),
    [("german", "das ist nicht ohne", 2), ("french", "n'est pas", 2), ("spanish", "como se hace", 0)],
)
def test_negations_are_counted(language: str, text: str, count: int) -> None:
    assert GUARDS[language].num_negations(text.split()) == count


def test_a_language_without_spaces_is_searched_for_its_words() -> None:
    assert GUARDS["chinese"].is_time_dependent(["现在几点了"], "现在几点了")
    assert not GUARDS["chinese"].is_personal(["现在几点了"], "现在几点了")

"""Guards of each language."""

from __future__ import annotations

import pytest

from gateway.cache.grammar.language_guards import GUARDS
from gateway.cache.similarity.differences import differences


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


@pytest.mark.parametrize(
    ("requested", "stored"),
    [
        ("Was ist die Hauptstadt von Portugal?", "Wie heißt die Hauptstadt von Portugal?"),
        ("¿Cómo se quita una mancha de vino tinto?", "¿Cómo quitar una mancha de vino tinto?"),
        ("Hoe kook ik een zacht ei?", "Hoe kook je een zacht ei?"),
    ],
)
def test_free_words_of_a_language_make_no_other_question(requested: str, stored: str) -> None:
    assert differences(requested, stored).veto is None


@pytest.mark.parametrize(
    ("requested", "stored"),
    [
        ("Wie öffne ich ein Konto?", "Wie schließe ich ein Konto?"),
        ("¿Quién es el alcalde de Sevilla?", "¿Quién es el alcalde de Málaga?"),
        ("Mag je rauwe eieren eten?", "Mag je geen rauwe eieren eten?"),
    ],
)
def test_other_words_of_a_language_do(requested: str, stored: str) -> None:
    assert differences(requested, stored).veto is not None

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
        ("Höhe der Brücke von Porto?", "Was ist die Höhe der Brücke von Porto?"),
        ("Was kostet ein Ruderboot?", "Wie viel kostet ein Ruderboot?"),
        ("Warum nistet der Reiher im Schilf?", "Weshalb nistet der Reiher im Schilf?"),
        ("Wie öffne ich ein Fass?", "Wie kann ich ein Fass öffnen?"),
        ("Comment ouvrir un tonneau ?", "Comment puis-je ouvrir un tonneau ?"),
        ("Hauteur du pont de Porto ?", "Quelle est la hauteur du pont de Porto ?"),
        ("¿Cómo abro un barril?", "¿Cómo puedo abrir un barril?"),
        ("¿Altura del puente de Braga?", "¿Cuál es la altura del puente de Braga?"),
        ("Quantos moinhos tem Braga?", "Quantos moinhos tem a Braga?"),
        ("Come apro una botte?", "Come posso aprire una botte?"),
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
        ("Darf man im See baden?", "Muss man im See baden?"),
        ("Des Moines mills open", "Des Moines mills not open"),
        ("Wie öffne ich ein Fass?", "Wie fülle ich ein Fass?"),
        ("Nistet der Reiher im Schilf?", "Nistet der Reiher nie im Schilf?"),
        ("Le moulin est-il ouvert ?", "Le moulin n'est-il pas ouvert ?"),
        ("¿Quién es el hermano de Ada?", "¿Quién es la hermana de Ada?"),
        ("Quanto costa una barca a Braga?", "How much is a boat in Braga?"),
        ("¿Cuánto cuesta el barco a Braga?", "¿Cuánto cuesta el barco de Braga?"),
        ("Combien coûte le bateau pour Braga ?", "Combien coûte le bateau de Braga ?"),
        ("Quanto custa o barco para Braga?", "Quanto custa o barco de Braga?"),
        ("Quanto dura il viaggio per Braga?", "Quanto dura il viaggio da Braga?"),
        ("Wann fährt das Boot nach Braga?", "Wann fährt das Boot von Braga?"),
        ("¿Quién venció a Ada?", "¿A quién venció Ada?"),
        ("Un enfant peut-il nager seul ?", "Un enfant peut-il nager ?"),
        ("Darf ein Kind allein schwimmen?", "Darf ein Kind schwimmen?"),
        ("オーストリアの鷺はどこですか?", "オーストラリアの鷺はどこですか?"),
    ],
)
def test_other_words_of_a_language_do(requested: str, stored: str) -> None:
    assert differences(requested, stored).veto is not None


@pytest.mark.parametrize(
    ("language", "one", "other", "expected"),
    [
        ("german", "öffnen", "öffne", True),
        ("german", "öffne", "öffnet", True),
        ("french", "ouvre", "ouvrir", True),
        ("spanish", "abro", "abrir", True),
        ("spanish", "hermano", "hermana", False),
        ("italian", "aprire", "apre", True),
        ("russian", "дом", "дома", False),
        ("german", "öl", "öle", False),
    ],
)
def test_an_infinitive_has_forms(language: str, one: str, other: str, expected: bool) -> None:
    assert GUARDS[language].are_one_verb(one, other) is expected
    assert GUARDS[language].are_one_verb(other, one) is expected

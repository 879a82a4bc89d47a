"""A text in the spelling of another one."""

from __future__ import annotations

import pytest

from gateway.cache.similarity.decision import SAME_BUT_SLIPS, SAME_WORDS, MatchModel
from gateway.cache.similarity.respelling import respelled
from gateway.cache.similarity.wording import Wording

STORED = "What is the capital of Australia?"


@pytest.mark.parametrize(
    "text", ["Waht is the capital of Australia", "what is the captial of Austrlia", "Hwat is teh capital of Australia?"]
)
def test_slips_are_undone(text: str) -> None:
    found = respelled(Wording.of(text), Wording.of(STORED))
    assert found.text == Wording.of(STORED).text


@pytest.mark.parametrize("text", ["What is the capital of Austria?", "What is the unload of Australia?", STORED])
def test_other_words_stay(text: str) -> None:
    wording = Wording.of(text)
    assert respelled(wording, Wording.of(STORED)) is wording


def test_a_slip_never_hides_a_negation() -> None:
    denied, plain = Wording.of("Should I nto prune a quince?"), Wording.of("Should I prune a quince?")
    assert MatchModel.shipped().probability_of(denied, plain, 0.99, None) == 0.0


def test_the_same_words_need_no_estimate() -> None:
    model = MatchModel.shipped()
    for text, expected in (
        (STORED.rstrip("?").lower(), SAME_WORDS),
        ("What is the captial of Australia?", SAME_BUT_SLIPS),
    ):
        assert model.match_probability(text, STORED, similarity=0.7, runner_up=None, track=None) == expected


def test_a_longer_name_of_programming_is_no_slip() -> None:
    stored, requested = Wording.of("What is JSON good for?"), Wording.of("What is JSONB good for?")
    assert respelled(requested, stored) is requested
    slip = Wording.of("How do I install Pyhton here?")
    assert respelled(slip, Wording.of("How do I install Python here?")).text == "how do i install python here"


def test_accents_that_were_not_typed_are_put_back() -> None:
    typed, stored = Wording.of("cual es la poblacion de Braga"), Wording.of("¿Cuál es la población de Braga?")
    assert respelled(typed, stored).text == stored.text.removeprefix("¿ ")
    other = Wording.of("¿Cuál es el año de la garza y su papá?")
    assert respelled(Wording.of("¿Cuál es el ano de la garza y su papá?"), other).text != other.text


def test_accents_that_tell_two_words_apart_stay() -> None:
    model = MatchModel.shipped()
    pairs = [
        ("What does lame mean here?", "What does lamé mean here?"),
        ("How do I resume a choir?", "How do I résumé a choir?"),
        ("¿Qué significa papa en Braga?", "¿Qué significa papá en Braga?"),
        ("How do I type n on a harp?", "How do I type ñ on a harp?"),
    ]
    for bare, accented in pairs:
        assert model.match_probability(bare, accented, similarity=0.99, runner_up=None, track=None) == 0.0
    cafe = model.match_probability("Is a cafe warm?", "Is a café warm?", similarity=0.99, runner_up=None, track=None)
    assert cafe == SAME_BUT_SLIPS

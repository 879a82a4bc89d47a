"""Modals, tenses and quantities of a text."""

from __future__ import annotations

import pytest

from gateway.cache.grammar.sentence_grammar import SentenceGrammar, sentence_grammar


def grammar(text: str, question: str = "") -> SentenceGrammar:
    return sentence_grammar(text.split(), question)


@pytest.mark.parametrize(
    ("text", "modals"),
    [
        ("must i go", {"necessity"}),
        ("do i have to go", {"necessity"}),
        ("am i required to go", {"necessity"}),
        ("am i allowed to go or should i stay", {"permission", "advice"}),
        ("i have a garden", set()),
        ("shouldn't i go", {"advice"}),
        ("can't i go", {"ability"}),
    ],
)
def test_modals_go_by_class(text: str, modals: set[str]) -> None:
    assert grammar(text).modals == modals


@pytest.mark.parametrize(
    ("text", "tenses"),
    [
        ("does it rain", {"present"}),
        ("did it rain", {"past"}),
        ("has it rained", {"perfect"}),
        ("has it a roof", {"present"}),
        ("will it have rained", {"future"}),
        ("is it going to rain", {"future"}),
        ("is he going to porto by bus", {"future"}),
        ("who owned it", {"past"}),
        ("who won it", {"past"}),
        ("who's in it", {"present"}),
        ("best way home", {"present"}),
    ],
)
def test_a_tense_is_that_of_its_helping_verb(text: str, tenses: set[str]) -> None:
    assert grammar(text).tenses == tenses


@pytest.mark.parametrize(
    ("text", "quantities"),
    [
        ("do most herons nest", {"most"}),
        ("what are the most popular herons", set()),
        ("what is the most famous heron", set()),
        ("do a few herons nest", {"some"}),
        ("do few herons nest", {"few"}),
        ("how many herons nest", set()),
        ("does every heron nest", {"all"}),
        ("why do most start ups fail", {"most"}),
        ("are most people tall", {"most"}),
    ],
)
def test_quantities_go_by_class(text: str, quantities: set[str]) -> None:
    assert grammar(text).quantities == quantities


def test_a_class_on_one_side_counts_in_the_same_frame_only() -> None:
    one, other = grammar("can it fly", "whether"), grammar("does it fly", "whether")
    assert one.has_other_modality(other, is_same_frame=True)
    assert not one.has_other_modality(other, is_same_frame=False)
    first, second = grammar("how can i fly", "how"), grammar("how do i fly", "how")
    assert not first.has_other_modality(second, is_same_frame=True)
    assert not first.has_other_modality(grammar("how would i fly", "how"), is_same_frame=True)


def test_quantities_and_ordinals_count_against_each_other() -> None:
    assert grammar("all herons").has_other_quantity(grammar("most herons"))
    assert grammar("the first heron").has_other_quantity(grammar("the last heron"))
    assert not grammar("the 1st heron").has_other_quantity(grammar("the first heron"))
    assert not grammar("any herons").has_other_quantity(grammar("some herons"))


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("the second largest lake", {"second"}),
        ("the second to last verse", {"second"}),
        ("in the late 1920s", {"late"}),
        ("early spring", {"early"}),
        ("the second verse in the early hours", set()),
    ],
)
def test_a_place_in_an_order_or_a_time_is_a_rank(text: str, ranks: set[str]) -> None:
    assert grammar(text).ranks == ranks


def test_a_bound_is_that_of_its_number() -> None:
    bounds = [grammar(f"{phrase} 3 herons").bounds for phrase in ("more than", "at least", "less than", "up to")]
    assert bounds == [{"more_than"}, {"at_least"}, {"less_than"}, {"at_most"}]

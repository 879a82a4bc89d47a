"""Segments score by their bearing on the question, by what they state, and by what stands beside them."""

from __future__ import annotations

import pytest

from gateway.trimming.relevance.question import fields_of, question_of
from gateway.trimming.relevance.scores import SegmentedText, SegmentScores
from gateway.trimming.relevance.words import Words

FILLER = [f"The ferry number {number} was late again." for number in range(20)]


def scores(segments: list[str], question: str, **similarities: float) -> list[float]:
    text = SegmentedText(segments, [""] * len(segments))
    cosines = {int(name[1:]): value for name, value in similarities.items()}
    return SegmentScores([text], question_of(question)).total(cosines or None)


def best(segments: list[str], question: str, **similarities: float) -> str:
    found = scores(segments, question, **similarities)
    return segments[found.index(max(found))]


def test_inflected_words_meet_in_any_language() -> None:
    for fact, question in (
        ("The reservoirs were emptied.", "Who is emptying the reservoir?"),
        ("Die Talsperren wurden geleert.", "Wie groß ist die Talsperre?"),
        ("Водохранилища опустели.", "Сколько воды в водохранилище?"),
        ("水库已经放空。", "水库怎么了？"),
        ("getUserName returns the name.", "What does get_user_name return?"),
    ):
        assert best([*FILLER, fact, *FILLER], question) == fact


def test_neighbours_of_an_answer_go_before_what_has_nothing_to_do_with_it() -> None:
    segments = [*FILLER[:10], "The pump is in the cellar.", *FILLER[10:]]
    found = scores(segments, "Where is the pump?")
    ranked = sorted(range(len(found)), key=lambda number: -found[number])
    assert ranked[0] == 10
    assert set(ranked[1:3]) == {9, 11}


def test_without_a_word_in_common_what_is_stated_only_once_goes_first() -> None:
    fact = "Olga keeps bees behind the chapel."
    assert best([*FILLER, fact, *FILLER], "Zebra?") == fact


def test_similarity_decides_where_words_do_not() -> None:
    segments = [*FILLER, "The guest network is called bluebird.", *FILLER]
    number = len(FILLER)
    near = {f"n{place}": 0.1 for place in range(len(segments))} | {f"n{number}": 0.7}
    assert best(segments, "How does a visitor get online?", **near) == segments[number]


@pytest.mark.parametrize(
    "question", ["Where does the neighbour of Lena live?", "Now answer: where is the home of the neighbour of Lena?"]
)
@pytest.mark.parametrize("is_within", [False, True])
def test_an_answer_of_two_steps_is_found_by_the_name_that_links_them(question: str, *, is_within: bool) -> None:
    neighbours = [f"The neighbour of P{n} is Q{n}. " for n in range(9)]
    homes = [f"Q{n} lives in Oakham. " for n in range(9)]
    facts = [f"Stefan {what}. " for what in ("walks a dog", "likes the colour blue", "sits in room 9", "eats soup")]
    answer = "Stefan has a house in Underhill. "
    segments = [
        *neighbours,
        *homes,
        *facts,
        "Lena lives next to Stefan. ",
        *FILLER,
        answer,
        *([question] if is_within else []),
    ]
    found = scores(segments, question)
    ranked = [segments[number] for number in sorted(range(len(found)), key=lambda number: -found[number])]
    assert ranked.index(answer) < min(ranked.index(other) for other in (*homes, *FILLER))


def test_a_short_question_leans_on_the_one_before_it() -> None:
    alone, leaning = question_of("And who?"), question_of("And who?", "Who repaired the turbine?")
    assert "turbin" not in " ".join(alone.weights)
    assert any(stem.startswith("turbin") for stem in leaning.weights)


def test_what_a_response_format_requires_counts_as_wanted() -> None:
    schema = {"type": "object", "properties": {"invoice_total": {"type": "number", "description": "Sum in euros"}}}
    names = fields_of({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    assert names == ["invoice_total", "Sum in euros"]
    assert set(Words().of("invoice total")) <= set(Words().of(names[0]))

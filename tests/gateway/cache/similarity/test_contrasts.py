"""Contrasts between two texts with the same topic."""

from __future__ import annotations

import pytest

from gateway.cache.similarity.comparison import Comparison
from gateway.cache.similarity.contrasts import (
    has_other_quantity,
    has_other_question,
    has_other_role,
    has_other_tense,
)
from gateway.cache.similarity.wording import Wording


def comparison(one: str, other: str) -> Comparison:
    return Comparison.of(Wording.of(one), Wording.of(other))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Who directs the choir?", "Who directed the choir?", True),
        ("How many foxes live here?", "How many foxes lived here?", True),
        ("Which tiles are glazed?", "Which tiles get glazed?", False),
        ("Why did Ada sell the mill?", "Why is the mill in Porto so old?", False),
    ],
)
def test_a_tense_counts_where_nothing_else_differs(one: str, other: str, expected: bool) -> None:
    assert has_other_tense(comparison(one, other)) is expected


def test_a_question_word_counts_where_nothing_else_differs() -> None:
    assert has_other_question(comparison("Where do herons nest?", "Why do herons nest?"))
    assert not has_other_question(comparison("How do herons nest?", "What do herons nest in?"))
    assert not has_other_question(comparison("Where do herons nest?", "Why do herons build nests of reed?"))


def test_a_passive_turns_the_roles() -> None:
    assert has_other_role(comparison("Was Ada taught by Grace?", "Did Ada teach Grace?"))
    assert not has_other_role(comparison("Was Ada taught by Grace?", "Did Grace teach Ada?"))
    assert has_other_role(comparison("Who was taught by Ada?", "Who taught Ada?"))
    assert not has_other_role(comparison("Who was taught by Ada?", "Who did Ada teach?"))
    assert not has_other_role(comparison("What is the best song by Ada?", "What is the best song of Ada?"))


def test_more_than_is_not_as_much_as() -> None:
    assert has_other_quantity(comparison("Is copper harder than iron?", "Is copper as hard as iron?"))
    assert not has_other_quantity(comparison("Is copper harder than iron?", "Is iron less hard than copper?"))

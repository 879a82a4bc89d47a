"""Statements of answers, and whether one answer states all that another does."""

from __future__ import annotations

import pytest

from gateway.cache.audit.answers.statements import Statements, differ_in_numbers_alone, share_numbers


@pytest.mark.parametrize(
    ("whole", "part", "expected"),
    [
        ("Open the settings, then press reset.", "1. Open settings\n2. Press reset", True),
        ("The play was written by Shakespeare.", "Shakespeare.", True),
        ("You cannot delete it.", "You can delete it.", False),
        ("Turn the lights on.", "Turn the lights off.", False),
        ("Sydney is the largest, but the capital is Canberra.", "The capital is Sydney.", False),
        ("Mix 10 with A and 20 with B.", "Mix 20 with A, and 10 with B.", False),
        ("It is 8,849 m high.", "It is 8848.86 m high", True),
        ("Press reset.", "Open the settings and press reset.", False),
    ],
)
def test_a_whole_contains_its_parts_unless_something_is_turned_around(whole: str, part: str, expected: bool) -> None:
    assert Statements.of(whole).contains(Statements.of(part)) is expected


def test_numbers_are_compared_by_place_and_by_value() -> None:
    ten, eleven, others = map(Statements.of, ("It takes ten minutes.", "It takes 11 minutes.", "No numbers."))
    assert differ_in_numbers_alone(ten, eleven)
    assert not differ_in_numbers_alone(ten, others)
    assert not share_numbers(ten, eleven)
    assert share_numbers(ten, others)


def test_the_first_word_affirms_or_denies() -> None:
    assert [Statements.of(text).affirms for text in ("Yes, it is.", "**No.**", "Perhaps.", "")] == [
        True,
        False,
        None,
        None,
    ]

"""Heads are asked ahead where that is nearly always of use."""

from __future__ import annotations

from engine.spec_decode.statistics.foreseen_looks import ForeseenLooks, SortOfStep

FIRST = SortOfStep(num_rows_bits=1, is_first=True, is_near_end=False)
LATER = FIRST._replace(is_first=False)


def foreseen(looks: ForeseenLooks, sort: SortOfStep, *, came: bool) -> bool:
    """What was thought of a step, before it became clear what came of it."""
    looks.step_ended()
    is_worth_it = looks.foresee(sort)
    if came:
        looks.asked()
    return is_worth_it


def test_a_first_look_is_taken() -> None:
    assert ForeseenLooks().foresee(FIRST)


def test_looks_that_come_to_nothing_are_taken_no_more() -> None:
    looks = ForeseenLooks()
    taken = [foreseen(looks, FIRST, came=False) for _ in range(50)]
    assert sum(taken) <= 3
    assert not taken[-1]


def test_they_are_taken_again_when_they_would_have_been_of_use() -> None:
    looks = ForeseenLooks()
    for _ in range(50):
        foreseen(looks, FIRST, came=False)
    assert [foreseen(looks, FIRST, came=True) for _ in range(50)][-1]


def test_each_sort_of_step_is_judged_alone() -> None:
    looks = ForeseenLooks()
    for _ in range(50):
        foreseen(looks, FIRST, came=False)
        assert foreseen(looks, LATER, came=True)


def test_one_look_in_vain_among_many_changes_nothing() -> None:
    looks = ForeseenLooks()
    for number in range(200):
        assert foreseen(looks, LATER, came=number % 12 != 11)

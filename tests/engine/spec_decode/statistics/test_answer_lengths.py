"""How long answers get is expected by how they begin."""

from __future__ import annotations

from engine.spec_decode.statistics.answer_lengths import AnswerLengths


def test_answers_that_begin_alike_are_expected_to_get_as_long() -> None:
    lengths = AnswerLengths()
    for _ in range(10):
        lengths.observe(1, 3)
        lengths.observe(2, 41)
    assert lengths.remaining(1, 1) == 2
    assert lengths.remaining(2, 1) == 40


def test_an_answer_that_outlived_short_ones_is_measured_by_the_long_ones() -> None:
    lengths = AnswerLengths()
    for length in (3, 3, 3, 3, 60):
        lengths.observe(1, length)
    assert lengths.remaining(1, 1) == 2
    assert lengths.remaining(1, 4) == 56
    assert lengths.remaining(1, 100) == 50


def test_something_is_expected_of_an_answer_like_none_before() -> None:
    assert AnswerLengths().remaining(1, 1) > 8


def test_only_the_last_answers_count() -> None:
    lengths = AnswerLengths()
    for length in (*[100] * 50, *[5] * 16):
        lengths.observe(1, length)
    assert lengths.remaining(1, 1) == 4

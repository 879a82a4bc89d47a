"""What earlier answers said is remembered by tenant, and only as much as fits."""

from __future__ import annotations

from engine.speculation.answer_lengths import AnswerLengths
from engine.speculation.answer_memory import LONGEST_STREAK, AnswerMemory

BEFORE = [10, 11, 12, 13, 14]


def test_what_an_answer_said_is_recalled_in_the_same_place() -> None:
    memory = AnswerMemory()
    memory.learn(b"", BEFORE, [1, 2, 3])
    found = memory.recall(b"", [*BEFORE, 1, 2])
    assert found is not None
    assert (found.token_id, found.size, found.streak) == (3, 5, 1)


def test_shorter_places_do_where_longer_ones_are_unknown() -> None:
    memory = AnswerMemory()
    memory.learn(b"", BEFORE, [1, 2, 3])
    found = memory.recall(b"", [90, 91, 92, 1, 2])
    assert found is not None
    assert (found.token_id, found.size) == (3, 2)
    assert memory.recall(b"", [90, 91]) is None


def test_the_last_answer_counts_and_agreement_of_several_is_told() -> None:
    memory = AnswerMemory()
    streaks = []
    for token_id in (7, *[8] * (LONGEST_STREAK + 3), 7):  # the second 7 takes the place of the 8
        memory.learn(b"", BEFORE, [token_id])
        found = memory.recall(b"", BEFORE)
        assert found is not None
        assert found.token_id == token_id
        streaks.append(found.streak)
    assert streaks == [1, *range(LONGEST_STREAK + 1), LONGEST_STREAK, LONGEST_STREAK, 0][: len(streaks)]


def test_one_tenant_learns_nothing_from_another() -> None:
    memory = AnswerMemory()
    memory.learn(b"mine", BEFORE, [1, 2])
    assert memory.recall(b"yours", BEFORE) is None
    assert memory.recall(b"mine", BEFORE) is not None


def test_what_is_used_stays_and_what_is_not_is_forgotten() -> None:
    memory = AnswerMemory(capacity=64)
    memory.learn(b"", [1, 1, 1, 1, 1], [5])
    for number in range(1000):
        memory.learn(b"", [100 + number] * 5, [7])
        memory.learn(b"", BEFORE, [6])
    assert memory.recall(b"", [1, 1, 1, 1, 1]) is None
    assert memory.recall(b"", BEFORE) is not None
    assert len(memory._young) + len(memory._old) <= 64 + 8


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

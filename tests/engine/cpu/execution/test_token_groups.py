"""Neighbouring tokens of a row attend together, a few at a time; of those that are sampled, side by side."""

from __future__ import annotations

import pytest

from engine.cpu.execution.token_groups import TokenGroups
from tests.engine.cpu.execution.test_prompt_rows import step_with

Groups = list[list[int]]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([1, 1, 1], [[0, 1, 0, 0], [1, 1, 1, 1], [2, 1, 2, 2]]),
        ([3, 1], [[0, 3, 0, 0], [3, 1, 1, 3]]),
        ([9, 2], [[0, 5, 0, 0], [5, 4, 0, 5], [9, 2, 1, 9]]),
    ],
)
def test_rows_are_cut_evenly(lengths: list[int], expected: Groups) -> None:
    assert [list(group) for group in TokenGroups(16).of(step_with(lengths))] == expected


@pytest.mark.parametrize(
    ("sampled", "expected"),
    [
        ([], []),
        ([9], [[9, 1, 1, 0]]),
        ([0, 9, 12], [[0, 1, 0, 0], [9, 1, 1, 1], [12, 1, 3, 2]]),
        ([0, 1, 2], [[0, 1, 0, 0], [1, 2, 1, 1]]),
        ([3, 5, 6, 10, 11], [[3, 1, 1, 0], [5, 2, 1, 1], [10, 2, 2, 3]]),
        (list(range(1, 10)), [[1, 5, 1, 0], [6, 4, 1, 5]]),
    ],
)
def test_sampled_tokens_go_on_side_by_side(sampled: list[int], expected: Groups) -> None:
    assert [list(group) for group in TokenGroups(16).of_sampled(step_with([1, 9, 2, 1], sampled))] == expected

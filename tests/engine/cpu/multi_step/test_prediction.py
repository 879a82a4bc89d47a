"""An answer finds its place in what was predicted, also where it left the prediction and came back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cpu.multi_step.prediction import AGREES_SO_FAR, ANCHOR, BEGINS, LONGEST_AGREEMENT, agreement, align

PROMPT = [901, 902, 903]
PREDICTED = list(range(10, 40))


def place(answer: list[int], predicted: list[int] = PREDICTED) -> tuple[int, int]:
    """Where the answer continues, and behind how long an agreement."""
    tail = np.array([*PROMPT, *answer][-LONGEST_AGREEMENT:])
    found, size = align(np.array(predicted), tail, len(tail), len(answer))
    return int(found), int(size)


@pytest.mark.parametrize(
    ("name", "answer", "expected"),
    [
        ("begins with the prediction", [], (0, 0)),
        ("follows it", PREDICTED[:5], (5, 5)),
        ("follows it for long", PREDICTED[:20], (20, LONGEST_AGREEMENT)),
        ("one word is another", [*PREDICTED[:5], 99], (6, 0)),
        ("came back behind the other word", [*PREDICTED[:5], 99, *PREDICTED[6:8]], (8, 2)),
        ("two words more", [*PREDICTED[:5], 98, 99, *PREDICTED[5:8]], (8, 3)),
        ("leaves words out", [*PREDICTED[:5], *PREDICTED[9:12]], (12, 3)),
        ("comes to it behind a long text of its own", [*range(500, 600), *PREDICTED[:4]], (4, 4)),
        ("comes to it late, with another word", [*range(500, 600), *PREDICTED[:4], 99], (5, 0)),
        ("has come to the end", PREDICTED, (-1, 0)),
        ("is longer", [*PREDICTED, 99], (-1, 0)),
    ],
)
def test_the_place_is_found_again(name: str, answer: list[int], expected: tuple[int, int]) -> None:
    assert place(answer) == expected, name


def test_of_equal_agreements_the_one_near_the_expected_place_counts() -> None:
    predicted = [1, 2, 3, 4, 7, 5, 6, 7, 8, 9, 7, 3]
    assert place([1, 2, 3, 4, 70, 5, 6, 7], predicted) == (8, 3)
    assert place([1, 2, 3, 4, 7], predicted) == (5, 5)
    assert place([1, 2, 3, 4, 60, 60, 60, 7], predicted) == (8, 1)


def test_the_prompt_is_no_part_of_the_answer() -> None:
    assert place([], [*PROMPT, 1, 2]) == (0, 0)
    assert place([1], [*PROMPT, 1, 2]) == (4, 1)


def test_an_answer_that_agrees_from_its_beginning_is_a_kind_of_its_own() -> None:
    assert agreement(0, 0, 0) == agreement(1, 1, 1) == BEGINS
    assert agreement(4, 4, 4) == AGREES_SO_FAR
    assert agreement(LONGEST_AGREEMENT, LONGEST_AGREEMENT, LONGEST_AGREEMENT) == LONGEST_AGREEMENT
    assert agreement(6, 0, 6) == 0


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_a_long_agreement_is_the_longest_that_there_is(answer: list[int], predicted: list[int]) -> None:
    def longest() -> int:
        newest = answer[-LONGEST_AGREEMENT:]
        for size in range(len(newest), 0, -1):
            if any(predicted[at : at + size] == newest[-size:] for at in range(len(predicted) - size + 1)):
                return size
        return 0

    found, size = place(answer, predicted)
    assert -1 <= found < len(predicted)
    if size:
        assert predicted[found - size : found] == answer[-size:]
    if found >= 0 and max(size, longest()) >= ANCHOR:
        assert size == longest()


def test_the_newest_anchor_counts_where_an_older_one_ends_at_the_same_place() -> None:
    assert place([2, 1, 1, 2, 1, 1, 0], [2, 1, 1, 1, 1]) == (4, 0)


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_the_place_is_the_one_that_its_definition_gives(answer: list[int], predicted: list[int]) -> None:
    def nearest(output: list[int], expected: int, reach: int) -> tuple[int, int]:
        """The longest agreement of the output's end within reach of the expected place, the nearest of equal ones."""

        def agrees(at: int, size: int) -> bool:
            return not size or predicted[:at][-size:] == output[-size:]

        places = [at for at in range(1, len(predicted) + 1) if abs(at - expected) <= reach]
        sizes = [(max(size for size in range(len(output) + 1) if agrees(at, size)), at) for at in places]
        size, at = max(sizes, key=lambda one: (one[0], -abs(one[1] - expected), -one[1]), default=(0, -1))
        return (at, size) if size else (-1, 0)

    found = nearest(answer, len(answer), 99)
    if found[1] < ANCHOR:
        expected = len(answer)
        for gap in range(1, min(8, len(answer) - 1) + 1):
            at, size = nearest(answer[:-gap], len(answer) - gap, 99)
            if size >= ANCHOR:
                expected = at + gap
                break
        found = nearest(answer, expected, 8)
        found = found if found[1] else (expected, 0)
    assert place(answer, predicted) == (found if found[0] < len(predicted) else (-1, 0))

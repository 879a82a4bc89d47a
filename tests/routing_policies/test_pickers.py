"""Whom the pickers take."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing_policies.pickers.best import Best
from routing_policies.pickers.proportional import Proportional


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ({"a": 0.5}, "a"),
        ({"a": 0.5, "b": 0.7}, "b"),
        ({"a": 0.5, "b": 0.5}, "a"),
        ({"b": 0.5, "a": 0.5}, "b"),
        ({"a": 0.0, "b": 0.0}, "a"),
    ],
)
def test_best_takes_the_highest_and_of_equals_the_first(totals: dict[str, float], expected: str) -> None:
    assert Best().pick(totals, random.Random(1)) == expected


def test_proportional_draws_each_candidate_as_often_as_its_share_states() -> None:
    rng = random.Random(7)
    drawn = Counter(Proportional().pick({"a": 1.0, "b": 0.25, "c": 0.0}, rng) for _ in range(10_000))
    assert drawn["c"] == 0
    assert drawn["a"] / 10_000 == pytest.approx(0.8, abs=0.02)


def test_proportional_draws_evenly_when_nobody_has_a_score() -> None:
    rng = random.Random(7)
    drawn = Counter(Proportional().pick({"a": 0.0, "b": 0.0}, rng) for _ in range(2_000))
    assert drawn["a"] / 2_000 == pytest.approx(0.5, abs=0.05)


@given(st.dictionaries(st.text(min_size=1), st.floats(0.0, 1.0), min_size=1, max_size=8), st.integers())
def test_every_picker_returns_a_candidate(totals: dict[str, float], seed: int) -> None:
    assert Best().pick(totals, random.Random(seed)) in totals
    assert Proportional().pick(totals, random.Random(seed)) in totals

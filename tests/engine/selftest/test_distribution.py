"""The test distinguishes distributions, and equal ones it does not."""

from __future__ import annotations

import random

import pytest

from engine.selftest.distribution import ChiSquare, compare_distributions


def draw(seed: int, weights: list[float], count: int = 2000) -> list[int]:
    return random.Random(seed).choices(range(len(weights)), weights, k=count)


def test_equal_distributions_pass_and_unequal_ones_do_not() -> None:
    assert compare_distributions(draw(1, [5, 3, 1]), draw(2, [5, 3, 1])).p_value > 0.01
    assert compare_distributions(draw(1, [5, 3, 1]), draw(2, [5, 2, 2])).p_value < 1e-6


def test_samples_may_differ_in_size() -> None:
    assert compare_distributions(draw(1, [5, 3, 1]), draw(2, [5, 3, 1], 500)).p_value > 0.01


def test_p_values_are_those_of_the_tables() -> None:
    for degrees, statistic in ((1, 3.841), (5, 11.070), (30, 43.773)):
        assert ChiSquare(statistic, degrees).p_value == pytest.approx(0.05, abs=0.004)
    assert ChiSquare(0.0, 0).p_value == 1.0


def test_rare_tokens_are_counted_together() -> None:
    found = compare_distributions([0] * 50 + list(range(1, 9)), [0] * 50 + list(range(11, 19)))
    assert found.degrees_of_freedom == 1
    assert found.p_value > 0.5


def test_nothing_is_known_of_an_empty_sample() -> None:
    assert compare_distributions([], [1]) == ChiSquare(0.0, 0)

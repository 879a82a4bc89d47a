"""Bounds of a mean that hold at every number of values together, also where it drifts."""

from __future__ import annotations

import numpy as np
import pytest

from routing_policies.off_policy.mean_sequence import lower_bounds

ALPHA = 0.05
RUNS, NUM = 300, 600


@pytest.mark.parametrize("least", [0.0, 3.0])
def test_the_bounds_hold_at_all_times_together_for_heavy_tails_and_drift(least: float) -> None:
    """Values of up to 20 with a mean that wanders; with `least`, also values below 0."""
    rng = np.random.default_rng(7)
    num_missed = 0
    for _ in range(RUNS):
        means = 0.5 + 0.4 * np.sin(np.arange(NUM) / 90 + rng.random() * 6)
        values = np.where(rng.random(NUM) < means / 20, 20.0, 0.0)
        if least:
            values = values + least * rng.choice([-1.0, 1.0], NUM)
        bounds = lower_bounds(values, least, ALPHA)
        num_missed += bool((bounds > np.cumsum(means) / np.arange(1, NUM + 1) + 1e-9).any())
    assert num_missed <= RUNS * ALPHA
    assert bounds[-1] > 0.0 or least


def test_a_fixed_interval_read_after_every_value_would_not_hold() -> None:
    """The test above can fail: the usual interval of the same probability misses far more often."""
    rng = np.random.default_rng(8)
    num_missed = 0
    for _ in range(RUNS):
        values = (rng.random(NUM) < 0.5).astype(float)
        counts = np.arange(1, NUM + 1)
        usual = np.cumsum(values) / counts - 1.645 * 0.5 / np.sqrt(counts)
        num_missed += bool((usual > 0.5 + 1e-9).any())
    assert num_missed > RUNS * 3 * ALPHA


def test_the_bound_approaches_the_mean_as_the_root_of_the_number() -> None:
    rng = np.random.default_rng(9)
    values = (rng.random(40_000) < 0.3).astype(float)
    at = np.array([100, 2_500, 40_000])
    gaps = values.cumsum()[at - 1] / at - lower_bounds(values, 0.0, ALPHA, at)
    assert gaps[0] / gaps[1] == pytest.approx(5.0, rel=0.35)
    assert gaps[1] / gaps[2] == pytest.approx(4.0, rel=0.35)
    usual = 1.96 * np.sqrt(0.21 / at)
    assert (gaps < 3.2 * usual).all()


def test_bounds_at_some_numbers_are_those_of_all_numbers() -> None:
    values = np.random.default_rng(1).random(50)
    at = np.array([1, 7, 50])
    assert lower_bounds(values, 0.0, ALPHA, at) == pytest.approx(lower_bounds(values, 0.0, ALPHA)[at - 1])
    assert lower_bounds(values, 0.0, ALPHA)[0] == 0.0


def test_values_of_one_kind_never_refute_what_they_agree_with() -> None:
    assert lower_bounds(np.zeros(1_000), 0.0, ALPHA).max() == 0.0
    ones = lower_bounds(np.ones(1_000), 0.0, ALPHA)
    assert 0.97 < ones[-1] < 1.0

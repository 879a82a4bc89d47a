"""Models of how long a deployment takes."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing_policies.estimation.latency import NonNegativeRegression, SpeedGain, TpotModel, TtftModel, blended


def test_the_prior_speaks_until_something_was_seen() -> None:
    model = NonNegativeRegression((0.02, 5e-5), (1.0, 1000.0), decay=0.995)
    assert model.predict((1.0, 1000.0)) == pytest.approx(0.07)


def test_coefficients_are_found_in_noise() -> None:
    model = NonNegativeRegression((0.02, 5e-5, 0.001), (1.0, 1000.0, 4.0), decay=0.995)
    rng = random.Random(1)
    for _ in range(500):
        tokens, rows = rng.lognormvariate(6, 1), rng.randrange(20)
        seconds = (0.01 + 2e-5 * tokens + 0.0005 * rows) * rng.gauss(1, 0.05)
        model.observe((1.0, tokens, float(rows)), max(seconds, 1e-3))

    for probe in ((1.0, 10.0, 0.0), (1.0, 500.0, 10.0), (1.0, 4000.0, 3.0)):
        expected = 0.01 + 2e-5 * probe[1] + 0.0005 * probe[2]
        assert model.predict(probe) == pytest.approx(expected, rel=0.06)


def test_one_hiccup_is_not_a_new_speed() -> None:
    model = NonNegativeRegression((0.02, 5e-5), (1.0, 1000.0), decay=0.995)
    for _ in range(100):
        model.observe((1.0, 100.0), 0.05)
    model.observe((1.0, 100.0), 50.0)
    for _ in range(4):
        model.observe((1.0, 100.0), 0.05)
    assert model.predict((1.0, 100.0)) < 0.06


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e3), st.floats(1e-4, 1e3)), max_size=60))
def test_nothing_that_is_seen_makes_more_work_take_less_time(samples: list[tuple[float, float, float]]) -> None:
    model = NonNegativeRegression((0.02, 5e-5, 0.001), (1.0, 1000.0, 4.0), decay=0.99)
    for tokens, rows, seconds in samples:
        model.observe((1.0, tokens, rows), seconds)
    assert all(term >= 0.0 for term in model.terms)


def test_the_gain_follows_a_handful_of_measurements_and_is_forgotten_when_nobody_measures() -> None:
    gain = SpeedGain(decay_s=10.0)
    for number in range(30):
        gain.observe(number / 10, 4.0)
    assert gain.value(3.0) == pytest.approx(4.0, rel=0.05)
    assert gain.value(10.0) < 3.0
    assert gain.value(120.0) == pytest.approx(1.0, abs=0.01)


def test_the_gain_is_no_second_source_of_noise() -> None:
    gain, rng, moved = SpeedGain(), random.Random(1), 0.0
    for number in range(500):
        gain.observe(number / 10, math.exp(rng.gauss(0, 0.3)))
        moved += abs(math.log(gain.value(number / 10)))
    assert moved / 500 <= 0.02


def test_of_two_forecasts_the_better_one_decides() -> None:
    assert blended((1.0, 0.1), (2.0, 0.3)) == pytest.approx(1.0, abs=0.05)
    assert blended((1.0, 0.2), (2.0, 0.2)) == pytest.approx(1.5)


def test_a_machine_that_becomes_twice_as_slow_is_followed() -> None:
    model = TtftModel((0.02, 5e-5), (1.0, 1000.0))
    for number in range(200):
        model.observe(number * 0.1, (1.0, 1000.0), 0.1)
    for number in range(20):
        model.observe(20 + number * 0.1, (1.0, 1000.0), 0.2)
    assert model.predict_s(22.0, (1.0, 1000.0)) == pytest.approx(0.2, rel=0.12)


def test_time_per_token_depends_on_the_rows() -> None:
    model = TpotModel()
    rng = random.Random(1)
    for number in range(300):
        rows = rng.randrange(1, 64)
        model.observe(number * 0.1, rows, (0.006 + 6e-5 * rows) * rng.gauss(1, 0.03))
    assert model.predict_s(30.0, 1) == pytest.approx(0.006, rel=0.07)
    assert model.predict_s(30.0, 60) == pytest.approx(0.0096, rel=0.07)


def test_whoever_erred_less_lately_weighs_more() -> None:
    assert blended((1.0, 0.1), (2.0, 0.1)) == pytest.approx(1.5)
    assert blended((1.0, 0.01), (2.0, 1.0)) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("factor", [0.1, 1.0, 20.0, 300.0])
def test_rare_and_small_features_are_learned_on_a_machine_far_from_the_prior(factor: float) -> None:
    """A base of 20 ms and 50 µs a token, `factor` times as much, from prompts of 20 to 140 tokens."""
    model = TtftModel(prior=(0.02, 5e-5), scales=(1.0, 1000.0))
    for number in range(200):
        tokens = 20.0 + 30.0 * (number % 5)
        model.observe(float(number), (1.0, tokens), factor * (0.02 + 5e-5 * tokens))
    long_s = factor * (0.02 + 5e-5 * 2000.0)
    assert model.predict_s(1000.0, (1.0, 2000.0)) == pytest.approx(long_s, rel=0.5)


def test_a_machine_near_the_prior_is_learned_as_before() -> None:
    """Twice as slow is no other machine: the prior holds where samples have little to say."""
    model = TtftModel(prior=(0.02, 5e-5), scales=(1.0, 1000.0))
    for number in range(8):
        model.observe(float(number), (1.0, 50.0), 0.04)
    assert model.terms[1] < 2 * 5e-5

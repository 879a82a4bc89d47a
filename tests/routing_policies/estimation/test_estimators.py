"""Small models of what cannot be known beforehand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing_policies.estimation.estimators import (
    BytesPerToken,
    DrainRate,
    ForecastError,
    OutputEstimate,
    PeakEwma,
)


def test_a_stranger_is_priced_at_four_bytes_a_token() -> None:
    assert BytesPerToken().tokens(4000) == 1000
    assert BytesPerToken().tokens(1) == 1


def test_the_ratio_and_the_templates_own_tokens_are_learned() -> None:
    ratio = BytesPerToken()
    rng = random.Random(1)
    for _ in range(200):
        num_bytes = rng.randrange(100, 20_000)
        ratio.observe(num_bytes, 30 + round(num_bytes / 3.1))

    assert ratio.tokens(200) == pytest.approx(30 + 200 / 3.1, rel=0.05)
    assert ratio.tokens(10_000) == pytest.approx(30 + 10_000 / 3.1, rel=0.02)


def test_prompts_of_one_size_still_give_a_ratio() -> None:
    ratio = BytesPerToken()
    for _ in range(20):
        ratio.observe(1000, 500)
    assert ratio.tokens(2000) == pytest.approx(1000, rel=0.01)


@given(st.lists(st.tuples(st.integers(-5, 10**7), st.integers(-5, 10**7)), max_size=30), st.integers(1, 10**8))
def test_whatever_was_counted_a_prompt_has_at_least_one_token(counts: list[tuple[int, int]], num_bytes: int) -> None:
    ratio = BytesPerToken()
    for seen_bytes, seen_tokens in counts:
        ratio.observe(seen_bytes, seen_tokens)
    assert ratio.tokens(num_bytes) >= 1


def test_lengths_of_answers_are_learned_and_cut_off_at_the_limit() -> None:
    outputs = OutputEstimate()
    rng = random.Random(1)
    for _ in range(500):
        outputs.observe(rng.expovariate(1 / 100))

    assert outputs.mean_tokens(None) == pytest.approx(100, rel=0.15)
    assert outputs.mean_tokens(20) < 20


def test_old_lengths_fade() -> None:
    outputs = OutputEstimate()
    for _ in range(1000):
        outputs.observe(1000)
    for _ in range(400):
        outputs.observe(10)
    assert outputs.mean_tokens(None) < 50


def test_lengths_stay_finite_for_ever() -> None:
    outputs = OutputEstimate()
    for _ in range(5000):
        outputs.observe(64)
    assert outputs.mean_tokens(None) == pytest.approx(60, rel=0.1)


def test_a_length_that_had_faded_to_nothing_counts_once_when_it_comes_back() -> None:
    forecast = OutputEstimate()
    forecast.observe(10_000)
    for _ in range(80_000):
        forecast.observe(10)
    for _ in range(8):  # until the mean is worked out anew
        forecast.observe(10_000)

    assert forecast.mean_tokens(None) == pytest.approx(10 + (1 - 0.99**8) * 10_000, rel=0.15)


def test_a_peak_is_taken_at_once_and_forgotten_slowly() -> None:
    peak = PeakEwma(decay_s=2.0, value=1.0)
    peak.observe(0.0, 10.0)
    assert peak.value(0.0) == 10.0
    peak.observe(0.1, 1.0)
    assert peak.value(0.1) > 9.0
    assert peak.value(2.1, floor=1.0) < peak.value(0.1)
    assert peak.value(60.0, floor=1.0) == pytest.approx(1.0)


def test_a_drain_rate_counts_busy_time_only() -> None:
    drain = DrainRate(window_s=5.0)
    assert drain.per_s is None
    for number in range(50):
        drain.start(float(number))
        drain.leave(number + 0.1, 100.0, is_last=True)
    assert drain.per_s == pytest.approx(1000.0)


def test_the_error_is_that_of_the_last_forecasts() -> None:
    error = ForecastError()
    assert error.quantile(0.5) is None
    for number in range(1000):
        error.observe(1.0 + number / 1000, 1.0)
    assert error.quantile(0.5) == pytest.approx(0.744, abs=0.01)
    assert error.quantile(1.0) == pytest.approx(0.999)

"""Rates of arrivals by lane."""

from __future__ import annotations

import pytest

from engine.scheduler.arrivals import Arrivals
from engine.scheduler.lanes import LANES


def test_rates_rise_with_arrivals_and_fade_without() -> None:
    arrivals = Arrivals(window_s=10.0)
    for index in range(100):
        arrivals.observe("batch", 50, 0.5 * index)
    rate = arrivals.rates(50.0)["batch"]
    assert rate.sequences_per_s == pytest.approx(2.0, rel=0.05)
    assert rate.prompt_tokens_per_s == pytest.approx(100.0, rel=0.05)
    assert arrivals.rates(80.0)["batch"].sequences_per_s < 0.2
    assert arrivals.rates(80.0)["interactive"].sequences_per_s == 0.0


def test_before_the_first_arrival_every_rate_is_zero() -> None:
    rates = Arrivals().rates(5.0)
    assert list(rates) == list(LANES)
    assert {rate.sequences_per_s for rate in rates.values()} == {0.0}


def test_a_short_history_counts_as_a_second() -> None:
    arrivals = Arrivals(window_s=1000.0)
    for _ in range(5):
        arrivals.observe("long", 10, 100.0)
    assert arrivals.rates(100.0)["long"].sequences_per_s == pytest.approx(5.0, rel=0.01)
    assert arrivals.rates(100.5)["long"].prompt_tokens_per_s == pytest.approx(50.0, rel=0.01)


def test_lanes_are_counted_apart_and_time_never_goes_back() -> None:
    arrivals = Arrivals()
    arrivals.observe("batch", 7, 10.0)
    arrivals.observe("batch", 7, 9.0)
    rates = arrivals.rates(10.0)
    assert rates["batch"].prompt_tokens_per_s == pytest.approx(7.0 * rates["batch"].sequences_per_s)
    assert rates["interactive"].sequences_per_s == 0.0

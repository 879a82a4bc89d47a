"""Counters and histograms: their bounds, their labels and their price."""

from __future__ import annotations

import pytest

from gateway.telemetry.instruments import SECONDS_BUCKETS, Histogram, Instruments


def test_histograms_reach_from_a_tenth_of_a_millisecond_to_two_minutes() -> None:
    assert (SECONDS_BUCKETS[0], SECONDS_BUCKETS[-1]) == (0.0001, 120.0)
    assert list(SECONDS_BUCKETS) == sorted(SECONDS_BUCKETS)


def test_a_value_on_a_bound_belongs_to_the_bucket_below_it() -> None:
    make = Instruments("x_")
    histogram = make.histogram("seconds", "help")
    for seconds in (0.001, 0.0011, 500.0):
        histogram.labels().observe(seconds)
    text = make.render().decode()

    assert 'x_seconds_bucket{le="0.001"} 1.0' in text
    assert 'x_seconds_bucket{le="0.0025"} 2.0' in text
    assert 'x_seconds_bucket{le="120.0"} 2.0' in text
    assert 'x_seconds_bucket{le="+Inf"} 3.0' in text


def test_wrong_labels_are_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="expected values"):
        Instruments("x_").counter("a_total", "help", ("b",)).labels()


def test_an_observation_is_cheap() -> None:
    histogram = Histogram()
    for _ in range(1000):
        histogram.observe(0.01)

    assert sum(histogram.counts) == 1000

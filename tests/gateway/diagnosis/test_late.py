"""Lateness: beyond a target, or well beyond one's own past, and only with enough requests to say so."""

from __future__ import annotations

from gateway.diagnosis.late import MIN_BASELINE, MIN_REQUESTS, is_late
from gateway.diagnosis.samples import Distribution
from gateway.telemetry.instruments import SECONDS_BUCKETS


def seen(count: float, mean_s: float) -> Distribution:
    return Distribution(count, count * mean_s)


def test_too_few_requests_are_never_late_however_slow() -> None:
    assert not is_late(seen(MIN_REQUESTS - 1, 60.0), seen(1000, 0.1), 0.5, 0.03)


def test_a_missed_target_is_late_even_where_it_always_was() -> None:
    assert is_late(seen(MIN_REQUESTS, 2.0), seen(1000, 2.0), 1.0, 0.03)
    assert not is_late(seen(MIN_REQUESTS, 2.0), seen(1000, 2.0), 3.0, 0.03)


def test_a_slow_tail_above_the_target_is_not_late_while_the_mean_is_far_below_it() -> None:
    counts = [0.0] * (len(SECONDS_BUCKETS) + 1)
    counts[0], counts[-2] = 90.0, 10.0  # a tenth took the longest that the buckets tell
    spread = Distribution(100.0, 20.0, tuple(counts))
    assert spread.quantile(0.95) > 1.0
    assert not is_late(spread, seen(1000, 0.2), 1.0, 0.03)


def test_growth_must_be_large_in_ratio_and_in_seconds() -> None:
    assert is_late(seen(10, 0.2), seen(MIN_BASELINE, 0.1), None, 0.03)
    assert not is_late(seen(10, 0.14), seen(MIN_BASELINE, 0.1), None, 0.03), "less than half as much again"
    assert not is_late(seen(10, 0.02), seen(MIN_BASELINE, 0.01), None, 0.03), "twice as long, and still nothing"


def test_growth_over_a_past_of_few_requests_reports_nothing() -> None:
    assert not is_late(seen(10, 5.0), seen(MIN_BASELINE - 1, 0.1), None, 0.03)

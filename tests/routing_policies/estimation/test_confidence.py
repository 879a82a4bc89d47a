"""Bounds of a ratio that hold at all checks together."""

from __future__ import annotations

import random

import pytest

from routing_policies.estimation.confidence import Bounds, ratio_bounds


def test_nothing_seen_excludes_nothing() -> None:
    assert ratio_bounds(0, 0, 0.05) == Bounds(0.0, 1.0)


@pytest.mark.parametrize(("events", "count"), [(0, 10), (1, 10), (5, 10), (10, 10), (3, 100_000), (50_000, 100_000)])
def test_bounds_hold_what_was_seen_and_mirror_their_complement(events: int, count: int) -> None:
    found, other = ratio_bounds(events, count, 0.05), ratio_bounds(count - events, count, 0.05)
    assert 0.0 <= found.low <= events / count <= found.high <= 1.0
    assert found.low == pytest.approx(1.0 - other.high, abs=1e-12)
    assert (found.low == 0.0) is (events == 0)
    assert (found.high == 1.0) is (events == count)


def test_more_requests_and_more_allowed_error_narrow_the_bounds() -> None:
    few, many, bold = ratio_bounds(2, 20, 0.05), ratio_bounds(200, 2000, 0.05), ratio_bounds(2, 20, 0.5)
    assert many.high - many.low < few.high - few.low
    assert bold.high - bold.low < few.high - few.low


def test_a_true_ratio_is_seldom_ever_outside_however_often_it_is_checked() -> None:
    rng, missed, runs = random.Random(11), 0, 150
    for _ in range(runs):
        events, is_missed = 0, False
        for count in range(1, 301):
            events += rng.random() < 0.3
            if count % 10 == 0:
                bounds = ratio_bounds(events, count, 0.1)
                is_missed |= not bounds.low <= 0.3 <= bounds.high
        missed += is_missed
    assert missed <= 0.1 * runs


def test_a_wrong_ratio_is_refuted_in_the_end() -> None:
    assert ratio_bounds(60, 200, 0.05).low > 0.2
    assert ratio_bounds(60, 200, 0.05).high < 0.42

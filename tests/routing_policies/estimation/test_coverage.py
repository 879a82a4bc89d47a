"""Bounds of first tokens hold as often as they state, while what they rest on drifts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing_policies.estimation.coverage import WINDOW, TtftBounds, ttft_bound_of, ttft_score_of

COVERAGE = 0.95
FORECAST_S = 0.1


def observed(bounds: TtftBounds, ttft_s: float, forecast_s: float = FORECAST_S) -> bool | None:
    """Learn from one request sent at once; whether its bound was met, None without one."""
    limits = bounds.limits()
    bounds.observe(forecast_s, ttft_s, limits)
    return None if not limits else ttft_s <= ttft_bound_of(forecast_s, limits[0][1])


def drifting_times(rng: random.Random, count: int) -> list[float]:
    """Times whose median doubles after a third of them, and that scatter twice as much after another third."""
    return [
        FORECAST_S * (2.0 if 3 * at > count else 1.0) * rng.lognormvariate(0.0, 0.6 if 3 * at > 2 * count else 0.3)
        for at in range(count)
    ]


def test_nothing_is_stated_before_enough_is_known() -> None:
    bounds = TtftBounds(COVERAGE)
    for number in range(19):
        assert bounds.limit(COVERAGE) is None, number
        observed(bounds, FORECAST_S)
    assert bounds.limit(COVERAGE) == pytest.approx(0.0)
    assert bounds.limit(0.99) is None
    assert bounds.limit(0.5) == pytest.approx(0.0)


def test_the_bound_covers_as_often_as_stated_under_drift() -> None:
    bounds, times = TtftBounds(COVERAGE), drifting_times(random.Random(1), 6000)
    ends = [end for ttft_s in times if (end := observed(bounds, ttft_s)) is not None]
    assert 0.94 <= sum(ends) / len(ends) <= 0.96
    windows = [sum(ends[at : at + 300]) / 300 for at in range(0, len(ends) - 300, 300)]
    assert min(windows) >= 0.88


def test_a_fixed_quantile_does_not() -> None:
    times = drifting_times(random.Random(1), 6000)
    fixed_s = sorted(times[:2000])[1900]
    assert sum(ttft_s <= fixed_s for ttft_s in times) / len(times) < 0.85


@given(st.lists(st.floats(0.0, 100.0), min_size=200, max_size=400))
def test_whatever_comes_misses_do_not_pile_up(times: list[float]) -> None:
    bounds = TtftBounds(0.5)
    ends = [end for ttft_s in times if (end := observed(bounds, ttft_s)) is not None]
    assert 0.2 <= sum(ends) / len(ends) <= 1.0
    assert bounds.num_scores <= WINDOW


def test_a_quoted_bound_learns_from_what_comes_later() -> None:
    """Requests with a quote find twice the load that the quote saw; the others find what they were forecast."""
    rng, bounds = random.Random(2), TtftBounds(COVERAGE)
    quoted: list[bool] = []
    at_once: list[bool] = []
    for _ in range(1500):
        end = observed(bounds, FORECAST_S * rng.lognormvariate(0.0, 0.3))
        limit = bounds.limit(COVERAGE)
        if end is None or limit is None:
            continue
        at_once.append(end)
        bound_s, ttft_s = ttft_bound_of(FORECAST_S, limit), 2.0 * FORECAST_S * rng.lognormvariate(0.0, 0.3)
        quoted.append(ttft_s <= bound_s)
        bounds.observe_quoted(FORECAST_S, ttft_s, COVERAGE, bound_s)
    assert sum(quoted[:20]) < 18
    assert 0.93 <= sum(quoted[20:]) / len(quoted[20:]) <= 0.97
    assert 0.94 <= sum(at_once) / len(at_once) <= 0.97


def test_each_stated_coverage_is_tracked() -> None:
    rng, bounds = random.Random(3), TtftBounds(COVERAGE)
    ends: dict[int, list[bool]] = {50: [], 80: [], 95: []}
    for at in range(3000):
        if at == 100:
            assert bounds.limit(0.8) is not None
            assert bounds.limit(0.5) is not None
        ttft_s = FORECAST_S * rng.lognormvariate(0.0, 0.5)
        limits = bounds.limits()
        for percent, limit in limits:
            ends[percent].append(ttft_s <= ttft_bound_of(FORECAST_S, limit))
        bounds.observe(FORECAST_S, ttft_s, limits)
    assert [sum(found) / len(found) for found in ends.values()] == pytest.approx([0.5, 0.8, 0.95], abs=0.02)


@given(st.floats(0.0, 100.0), st.floats(0.001, 100.0))
def test_a_bound_has_the_score_of_its_limit(forecast_s: float, ttft_s: float) -> None:
    assert ttft_bound_of(forecast_s, ttft_score_of(forecast_s, ttft_s)) == pytest.approx(ttft_s, rel=1e-6, abs=1e-9)


def test_no_bound_is_so_short_that_none_could_meet_it() -> None:
    assert ttft_bound_of(0.010, ttft_score_of(0.050, 0.0)) == 0.001


def test_a_window_forgets_its_oldest_score() -> None:
    bounds = TtftBounds(0.5)
    for ttft_s in [10.0] * WINDOW + [FORECAST_S] * WINDOW:
        bounds.observe(FORECAST_S, ttft_s, ())
    assert bounds.num_scores == WINDOW
    assert bounds.limit(0.99) == pytest.approx(0.0)

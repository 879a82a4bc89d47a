"""Thresholds keep a bound with its interval."""

from __future__ import annotations

import numpy as np

from gateway.cache.fitting.thresholds import thresholds_of


def thresholds(
    groups: np.ndarray[tuple[int], np.dtype[np.int64]], bounds: tuple[float, ...] = (0.01, 0.05)
) -> list[float]:
    rng = np.random.default_rng(5)
    number = len(groups)
    match_probabilities = np.where(rng.random(number) < 0.3, rng.random(number), 0.0)
    wrong = rng.random(number)[groups] > match_probabilities  # one group, one luck
    found = thresholds_of(match_probabilities, wrong, groups, bounds, margin=1.0, num_resamples=200, rng=rng)
    for threshold in found:
        error = float((wrong & (match_probabilities >= threshold.match_probability)).mean())
        assert error < threshold.max_error_ratio
    return [threshold.match_probability for threshold in found]


def test_a_threshold_keeps_the_bound_and_a_larger_bound_lowers_it() -> None:
    strict, loose = thresholds(np.arange(20_000))
    assert strict > loose > 0.0


def test_texts_that_belong_together_make_the_interval_wider() -> None:
    alone, together = thresholds(np.arange(20_000)), thresholds(np.arange(20_000) // 40)
    assert together[-1] > alone[-1]


def test_a_bound_that_the_data_cannot_show_is_left_out() -> None:
    assert len(thresholds(np.arange(1000), bounds=(0.0, 0.05))) == 1

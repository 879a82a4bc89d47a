"""Floors that keep a bound with its interval, and what audits change."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.cache.audit.calibration import CalibrationSample, floors_of, recalibrate
from gateway.cache.similarity.decision import Calibration
from routing_policies.estimation.boosted_trees import logistic, logit

SHIPPED = Calibration(slope=0.9, shift=0.1)


def verdicts(num_right: int, num_wrong: int, chance: float = 0.9) -> list[CalibrationSample]:
    return [CalibrationSample(chance, True)] * num_right + [CalibrationSample(chance, False)] * num_wrong


def moved(calibration: Calibration, chance: float) -> float:
    """What the recalibrated judge says where the shipped one says `chance`."""
    told = (logit(chance) - SHIPPED.shift) / SHIPPED.slope
    return logistic(calibration.slope * told + calibration.shift)


def test_without_verdicts_nothing_changes() -> None:
    assert recalibrate(SHIPPED, []) == SHIPPED
    assert (
        recalibrate(
            SHIPPED,
            [CalibrationSample(0.0, False), CalibrationSample(1.0, True), CalibrationSample(0.5, True, weight=0.0)],
        )
        == SHIPPED
    )


def test_verdicts_as_expected_change_nothing_much() -> None:
    assert moved(recalibrate(SHIPPED, verdicts(90, 10)), 0.9) == pytest.approx(0.9, abs=0.005)


def test_few_verdicts_move_it_little_and_many_where_they_say() -> None:
    few, many = recalibrate(SHIPPED, verdicts(1, 1)), recalibrate(SHIPPED, verdicts(1000, 1000))
    assert 0.85 < moved(few, 0.9) < 0.9
    assert moved(many, 0.9) == pytest.approx(0.5, abs=0.03)


def test_good_verdicts_raise_and_bad_ones_lower() -> None:
    assert moved(recalibrate(SHIPPED, verdicts(200, 0)), 0.9) > 0.92
    assert moved(recalibrate(SHIPPED, verdicts(60, 40)), 0.9) < 0.75


def test_a_verdict_counts_as_much_as_it_stands_for() -> None:
    one = [CalibrationSample(0.9, True, weight=1.0)] * 50 + [CalibrationSample(0.9, False, weight=3.0)] * 50
    assert moved(recalibrate(SHIPPED, one), 0.9) < moved(recalibrate(SHIPPED, verdicts(50, 50)), 0.9)


def test_a_slope_never_turns_the_order_around() -> None:
    backwards = verdicts(0, 500, chance=0.95) + verdicts(500, 0, chance=0.55)
    assert recalibrate(SHIPPED, backwards).slope > 0.0


def floors(groups: np.ndarray[tuple[int], np.dtype[np.int64]], bounds: tuple[float, ...] = (0.01, 0.05)) -> list[float]:
    rng = np.random.default_rng(5)
    number = len(groups)
    chances = np.where(rng.random(number) < 0.3, rng.random(number), 0.0)
    wrong = rng.random(number)[groups] > chances  # one group, one luck
    found = floors_of(chances, wrong, groups, bounds, margin=1.0, num_resamples=200, rng=rng)
    for floor in found:
        error = float((wrong & (chances >= floor.chance)).mean())
        assert error < floor.max_error_ratio
    return [floor.chance for floor in found]


def test_a_floor_keeps_the_bound_and_a_larger_bound_lowers_it() -> None:
    strict, loose = floors(np.arange(20_000))
    assert strict > loose > 0.0


def test_texts_that_belong_together_make_the_interval_wider() -> None:
    alone, together = floors(np.arange(20_000)), floors(np.arange(20_000) // 40)
    assert together[-1] > alone[-1]


def test_a_bound_that_the_data_cannot_show_is_left_out() -> None:
    assert len(floors(np.arange(1000), bounds=(0.0, 0.05))) == 1

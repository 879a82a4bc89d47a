"""Audits change the match probability where they state something else."""

from __future__ import annotations

import pytest

from gateway.cache.audit.calibration import CalibrationSample, recalibrate
from gateway.cache.similarity.decision import Calibration
from routing_policies.estimation.boosted_trees import logistic, logit

SHIPPED = Calibration(slope=0.9, shift=0.1)


def verdicts(num_right: int, num_wrong: int, match_probability: float = 0.9) -> list[CalibrationSample]:
    return [CalibrationSample(match_probability, True)] * num_right + [
        CalibrationSample(match_probability, False)
    ] * num_wrong


def moved(calibration: Calibration, match_probability: float) -> float:
    """Probability of the recalibrated model where the shipped one has `match_probability`."""
    notified = (logit(match_probability) - SHIPPED.shift) / SHIPPED.slope
    return logistic(calibration.slope * notified + calibration.shift)


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


def test_few_verdicts_move_it_little_and_many_where_they_state() -> None:
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
    backwards = verdicts(0, 500, match_probability=0.95) + verdicts(500, 0, match_probability=0.55)
    assert recalibrate(SHIPPED, backwards).slope > 0.0

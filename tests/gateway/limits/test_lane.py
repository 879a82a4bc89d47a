"""LiveLane: how fast it drains and what that guarantees."""

from __future__ import annotations

import pytest

from gateway.limits.lane import MAX_PREDICTION_S, DrainMeter, LiveLane


@pytest.mark.parametrize("per_s", [0.5, 5.0, 200.0])
def test_the_meter_finds_a_steady_rate(per_s: float) -> None:
    meter = DrainMeter()
    now = 10.0
    for _ in range(int(per_s * 30)):
        meter.add(now)
        now += 1 / per_s

    assert meter.per_s(now) == pytest.approx(per_s, rel=0.15)


def test_the_meter_forgets() -> None:
    meter = DrainMeter()
    for tick in range(100):
        meter.add(tick / 100)

    rate = meter.per_s(60.0)
    assert rate is not None
    assert rate < 0.1


def test_before_anything_left_the_shortest_wait_is_allowed() -> None:
    assert LiveLane("a").predicted_wait_s(1.0) == 1.0


def test_the_prediction_is_the_queue_over_the_rate() -> None:
    lane = LiveLane("a")
    for tick in range(300):
        lane.drained.add(tick / 10)
    lane.num_waiting = 49

    assert lane.predicted_wait_s(30.0) == pytest.approx(5.0, rel=0.1)


def test_a_lane_that_stands_still_predicts_a_bounded_wait() -> None:
    lane = LiveLane("a")
    lane.drained.add(0.0)

    assert lane.predicted_wait_s(1e6) == MAX_PREDICTION_S

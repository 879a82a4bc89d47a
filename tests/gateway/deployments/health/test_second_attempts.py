"""Second attempts: when one is due, and what pays for it."""

from __future__ import annotations

import pytest

from gateway.deployments.health.second_attempts import MIN_SAMPLES, WINDOW_S, RecentDelays, RetryBudget


def test_what_is_late_is_learned_from_recent_delays() -> None:
    delays = RecentDelays()
    for number in range(MIN_SAMPLES - 1):
        delays.add(number / 100, 0.1)
    assert delays.late_s(0.5) is None
    for number in range(200):
        delays.add(1.0, 0.1 if number % 10 else 5.0)
    late_s, usual_s = delays.late_s(2.0), delays.usual_s(2.0)

    assert late_s is not None
    assert usual_s is not None
    assert 5.0 <= late_s <= 5.6
    assert 0.1 <= usual_s <= 0.112


def test_delays_of_long_ago_are_forgotten() -> None:
    delays = RecentDelays()
    for _ in range(50):
        delays.add(0.0, 5.0)
    for _ in range(50):
        delays.add(WINDOW_S, 0.1)
    assert delays.late_s(WINDOW_S) is not None
    delays.add(2 * WINDOW_S, 0.1)
    late_s = delays.late_s(2 * WINDOW_S)

    assert late_s is not None
    assert late_s < 0.2
    assert delays.late_s(10 * WINDOW_S) is None


def test_the_budget_pays_a_reserve_and_then_a_share() -> None:
    budget = RetryBudget(ratio=0.1, reserve=2)
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    for _ in range(11):
        budget.earn()

    assert budget.spend()
    assert not budget.spend()


@pytest.mark.parametrize(("ratio", "reserve"), [(-0.1, 10), (1.1, 10), (0.1, 0)])
def test_a_budget_that_makes_no_sense_is_refused(ratio: float, reserve: float) -> None:
    with pytest.raises(ValueError, match="expected a ratio"):
        RetryBudget(ratio=ratio, reserve=reserve)

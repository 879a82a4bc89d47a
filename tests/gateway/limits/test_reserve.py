"""Permits kept free: as many as waits have shown to be needed, and fewer again with time."""

from __future__ import annotations

from gateway.limits.reserve import RETENTION_S, Reserve


def test_nothing_is_reserved_until_somebody_had_to_wait() -> None:
    assert Reserve().level(1e9) == 0


def test_each_wait_adds_one_up_to_the_bound() -> None:
    reserve = Reserve()
    for _ in range(5):
        reserve.note_wait(0.0, 3)
    assert reserve.level(0.0) == reserve.most == 3
    reserve.note_wait(1.0, 1)
    assert reserve.level(1.0) == 1, "a smaller bound counts at once"


def test_one_is_given_up_for_each_idle_period_and_a_wait_starts_it_anew() -> None:
    reserve = Reserve()
    for _ in range(3):
        reserve.note_wait(0.0, 9)
    assert reserve.level(RETENTION_S) == 3
    assert reserve.level(RETENTION_S + 0.1) == 2
    assert reserve.level(2 * RETENTION_S + 0.2) == 1
    reserve.note_wait(2 * RETENTION_S + 0.2, 9)
    assert reserve.level(3 * RETENTION_S) == 2
    assert reserve.level(1e9) == 0

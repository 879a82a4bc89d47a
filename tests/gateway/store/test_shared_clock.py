"""SharedClock: the store's time where this machine's is wrong, this machine's own where it is right."""

from __future__ import annotations

from gateway.store.shared_clock import SharedClock


def test_a_clock_that_is_right_stays_as_it_is() -> None:
    clock = SharedClock(lambda: 1000.0)
    clock.note(1000.4)
    assert (clock(), clock.skew_s) == (1000.0, 0.0)


def test_a_clock_that_is_an_hour_late_is_set_right_and_set_back_once_it_is_right() -> None:
    now = 1000.0
    clock = SharedClock(lambda: now)
    clock.note(4600.0)
    assert clock() == 4600.0
    clock.note(4600.3)  # the time that an answer takes changes nothing
    assert clock() == 4600.0
    now = 4601.0  # an operator has corrected the machine's clock
    clock.note(4601.0)
    assert (clock(), clock.skew_s) == (4601.0, 0.0)

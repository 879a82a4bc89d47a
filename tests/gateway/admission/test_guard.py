"""OverloadGuard: what is refused while the process itself is overloaded."""

from __future__ import annotations

import pytest

from gateway.admission.guard import MEMORY_EVERY_TICKS, OverloadGuard, Strain
from gateway.errors import Shed
from gateway.limits.lane import LiveLane

HEAVY, LIGHT = LiveLane("interactive", weight=8), LiveLane("batch", weight=1)


def guard(memory: list[int] | None = None) -> OverloadGuard:
    found = memory or [0]
    return OverloadGuard(memory_limit_bytes=None if memory is None else 1000, resident_bytes=lambda: found[0])


def is_refused(requested: OverloadGuard, lane: LiveLane, *, is_retry: bool = False) -> bool:
    try:
        requested.check(lane, HEAVY.rules.weight, is_retry=is_retry)
    except Shed as shed:
        return shed.reason == "overload"
    return False


def test_a_loop_in_time_refuses_nobody() -> None:
    requested = guard()
    for _ in range(50):
        requested.note_lag(0.01)

    assert requested.strain is Strain.NONE
    assert not is_refused(requested, LIGHT, is_retry=True)


def test_a_strained_loop_refuses_retries_and_lighter_lanes() -> None:
    requested = guard()
    for _ in range(10):
        requested.note_lag(0.4)

    assert (
        is_refused(requested, HEAVY),
        is_refused(requested, LIGHT),
        is_refused(requested, HEAVY, is_retry=True),
    ) == (
        False,
        True,
        True,
    )


def test_one_stall_that_is_over_refuses_nobody() -> None:
    requested = guard()
    for lag_s in (0.0, 3.0, 0.01, 0.0, 2.0, 0.0):
        requested.note_lag(lag_s)
        assert not is_refused(requested, LIGHT, is_retry=True)


def test_a_loop_that_is_late_again_and_again_refuses_everything_until_it_is_in_time() -> None:
    requested = guard()
    for _ in range(3):
        requested.note_lag(2.0)
    assert is_refused(requested, HEAVY)
    for _ in range(5):
        requested.note_lag(0.0)

    assert requested.strain is Strain.NONE


def test_the_way_back_begins_at_half_of_what_led_there() -> None:
    requested = guard()
    for _ in range(20):
        requested.note_lag(0.3)
    for _ in range(20):
        requested.note_lag(0.2)
    assert is_refused(requested, LIGHT)
    for _ in range(20):
        requested.note_lag(0.1)

    assert not is_refused(requested, LIGHT)


@pytest.mark.parametrize(("used", "strain"), [(500, Strain.NONE), (920, Strain.STRAINED), (1001, Strain.OVERLOADED)])
def test_memory_strains_too(used: int, strain: Strain) -> None:
    memory = [0]
    requested = guard(memory)
    memory[0] = used
    for _ in range(MEMORY_EVERY_TICKS + 1):
        requested.note_lag(0.0)

    assert requested.strain is strain

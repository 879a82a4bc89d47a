"""The arithmetic of meters, on a clock of its own."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.store.meter import NEVER_S, Draw, Meter, Period, draw_units, even_share, period_bounds

MINUTE = Meter("m", Period.MINUTE, 30)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@given(
    st.lists(st.tuples(st.floats(0.0, 7.0), st.integers(1, 12), st.floats(0.0, 0.999), st.integers(1, 16)), max_size=99)
)
def test_no_sixty_seconds_hold_more_than_the_limit_whenever_the_units_are_used(
    steps: list[tuple[float, int, float, int]],
) -> None:
    counts: dict[int, int] = {}
    now, uses = 1_000_000.0, deque[tuple[float, int]]()
    for pause, want, when, ahead in steps:
        now += pause
        grant = draw_units(counts, Draw(MINUTE, want, 1, ahead), now, 1)
        if grant.units:
            uses.append((now + grant.usable_s * when, grant.units))
    for start, _ in uses:
        assert sum(units for used_at, units in uses if start <= used_at < start + 60.0) <= MINUTE.limit


def test_who_waits_as_long_as_reported_is_served() -> None:
    counts: dict[int, int] = {}
    draw_units(counts, Draw(MINUTE, 20, 20), 1000.2, 1)
    draw_units(counts, Draw(MINUTE, 10, 10), 1030.7, 1)
    refused = draw_units(counts, Draw(MINUTE, 15, 15), 1031.0, 1)
    assert refused.units == 0
    assert draw_units(counts, Draw(MINUTE, 15, 15), 1031.0 + refused.wait_s - 0.001, 1).units == 0
    assert draw_units(counts, Draw(MINUTE, 15, 15), 1031.0 + refused.wait_s, 1).units == 15


def test_a_meter_is_whole_again_when_it_stated() -> None:
    counts: dict[int, int] = {}
    grant = draw_units(counts, Draw(MINUTE, 30, 30), 1000.2, 1)
    assert draw_units(counts, Draw(MINUTE), 1000.2 + grant.reset_s - 0.01, 1).remaining == 0
    assert draw_units(counts, Draw(MINUTE), 1000.2 + grant.reset_s, 1).remaining == 30
    assert counts == {}


def test_more_than_the_limit_is_never_to_be_had() -> None:
    assert draw_units({}, Draw(MINUTE, 31, 31), 1000.0, 1).wait_s == NEVER_S


def test_a_clock_that_is_set_back_does_not_lock_anybody_out() -> None:
    counts: dict[int, int] = {}
    draw_units(counts, Draw(MINUTE, 30, 30), 10_000.0, 1)
    assert draw_units(counts, Draw(MINUTE, 30, 30), 6_400.0, 1).units == 30


def test_a_clock_that_jumps_ahead_only_frees() -> None:
    counts: dict[int, int] = {}
    draw_units(counts, Draw(MINUTE, 30, 30), 10_000.0, 1)
    assert draw_units(counts, Draw(MINUTE, 30, 30), 13_600.0, 1).units == 30


@pytest.mark.parametrize(
    ("period", "now", "start", "end"),
    [
        (Period.DAY, "2026-02-28T23:59:59.9", "2026-02-28", "2026-03-01"),
        (Period.DAY, "2028-02-29T00:00:00", "2028-02-29", "2028-03-01"),
        (Period.MONTH, "2026-12-31T23:59:59", "2026-12-01", "2027-01-01"),
        (Period.MONTH, "2026-02-01T00:00:00", "2026-02-01", "2026-03-01"),
    ],
)
def test_days_and_months_are_those_of_the_calendar(period: Period, now: str, start: str, end: str) -> None:
    assert period_bounds(period, at(now)) == (at(start), at(end))


@pytest.mark.parametrize(
    ("free", "want", "at_least", "holders", "units"),
    [
        (100, 30, 1, 1, 30),
        (100, 300, 1, 1, 100),
        (100, 300, 1, 5, 10),
        (100, 300, 40, 5, 40),
        (8, 300, 1, 5, 1),
        (3, 300, 4, 1, 0),
        (0, 300, 0, 1, 0),
        (-5, 300, 1, 1, 0),
        (10, 0, 0, 1, 0),
    ],
)
def test_who_shares_gets_what_it_needs_and_no_more_than_half_its_share_beyond(
    free: int, want: int, at_least: int, holders: int, units: int
) -> None:
    assert even_share(free, want, at_least, holders) == units

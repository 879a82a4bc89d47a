"""Meter: units that may be used in a period, and the arithmetic of drawing some of them.

A meter keeps what was drawn in *buckets* of time. One that counts a minute has half-second buckets and adds up those of
the last sixty seconds, so that no sixty seconds, wherever they begin, see more than the limit. One that counts a
calendar day or month (UTC) has one bucket, which is the period.

What is drawn may be used until the end of a *later* bucket, most often the next one, and is counted there: a holder can
use a slice for a while without another call, and a unit never leaves the sum less than a minute after its use. The
price of a longer while is that units stay counted for as much longer.

This is the arithmetic of the embedded store and of a gateway that has lost its store. `redis/scripts.py` is the
same in Lua; the contract tests hold them to each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

BUCKET_S = 0.5
MINUTE_BUCKETS = 120
MAX_AHEAD = 16
"""The latest bucket, counted from the present one, that units may be counted in."""
NEVER_S = -1.0
MAX_BUCKET_UNITS = 10**15
"""Most units that one bucket counts; no limit is larger, and every store can add up as many."""


class Period(StrEnum):
    """The period of a limit."""

    MINUTE = "minute"
    DAY = "day"
    MONTH = "month"


class Meter(msgspec.Struct, frozen=True):
    """A named limit of a space, such as `requests` by the minute."""

    name: str
    period: Period
    limit: int


class Draw(msgspec.Struct, frozen=True):
    """Units that a holder returns to a meter, and units that it requests."""

    meter: Meter
    want: int = 0
    at_least: int = 0
    """Least useful number: with fewer, none are granted."""
    ahead: int = 1
    """Buckets after the present one in which the units may still be used, 1 to MAX_AHEAD."""
    returns: tuple[tuple[int, int], ...] = ()
    """(bucket, units): units given back to a bucket, or, when negative, used beyond what was drawn."""


class Grant(msgspec.Struct, frozen=True):
    """Units granted of one meter, and the meter's state after it."""

    units: int
    bucket: int
    """The bucket that counts the units, and takes unused ones back."""
    usable_s: float
    """Time for which the units may be used."""
    remaining: int
    """Units that could still be drawn; negative when more were used than the limit."""
    reset_s: float
    """Time until the whole limit is free again."""
    wait_s: float
    """Time until `at_least` can be granted, if it was not; NEVER_S when the limit itself is smaller."""


def draw_units(counts: dict[int, int], request: Draw, now: float, num_holders: int) -> Grant:
    """Apply one draw to a meter's buckets in place. Units are whole; `now` is in seconds since 1970."""
    meter = request.meter
    bucket, oldest, usable_s = _place(meter.period, request.ahead, now)
    if meter.period is Period.MINUTE and max(counts, default=0) > oldest + MINUTE_BUCKETS + MAX_AHEAD:
        counts.clear()  # the clock was set back: nothing in here can be dated any more
    for old in [key for key in counts if key < oldest]:
        del counts[old]
    for key, units in request.returns:
        if units > 0 and key in counts:
            counts[key] = max(counts[key] - units, 0)
        elif units < 0 and key >= oldest:
            counts[min(key, bucket)] = min(counts.get(min(key, bucket), 0) - units, MAX_BUCKET_UNITS)
    free = meter.limit - sum(counts.values())
    units = even_share(free, request.want, request.at_least, num_holders)
    if units:
        counts[bucket] = counts.get(bucket, 0) + units
    for key in [key for key, count in counts.items() if not count]:
        del counts[key]
    wait_s = 0.0 if units >= request.at_least else _wait_s(counts, meter, request.at_least - free, now)
    reset_s = _end_s(meter.period, max(counts), now) if counts else 0.0
    return Grant(units, bucket, usable_s, free - units, reset_s, wait_s)


def even_share(free: int, want: int, at_least: int, num_holders: int) -> int:
    """Compute the number of free units that one holder gets.

    A single holder gets all that it wants, one of several no more than half of its even share.
    """
    if free < max(at_least, 1):
        return 0
    fair = free if num_holders <= 1 else free // (2 * num_holders)
    return min(free, max(want, at_least), max(fair, at_least))


def period_bounds(period: Period, now: float) -> tuple[int, int]:
    """Return start and end of the calendar day or month (UTC) that holds `now`, in whole seconds since 1970."""
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period is Period.DAY:
        start = int(today.timestamp())
        return start, start + 86_400
    first = today.replace(day=1)
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return int(first.timestamp()), int(following.timestamp())


def _place(period: Period, ahead: int, now: float) -> tuple[int, int, float]:
    """Return the bucket of a draw, the oldest bucket that counts, and how long the units may be used."""
    if period is Period.MINUTE:
        current = math.floor(now / BUCKET_S)
        return current + ahead, current - MINUTE_BUCKETS, (current + ahead + 1) * BUCKET_S - now
    start, end = period_bounds(period, now)
    return start, start, min((ahead + 1) * BUCKET_S, end - now)


def _end_s(period: Period, bucket: int, now: float) -> float:
    """Return the time until the bucket stops being counted."""
    if period is Period.MINUTE:
        return (bucket + MINUTE_BUCKETS + 1) * BUCKET_S - now
    return period_bounds(period, now)[1] - now


def _wait_s(counts: Mapping[int, int], meter: Meter, missing: int, now: float) -> float:
    """Compute the time until `missing` units will have left the sum, if there is no draw in between."""
    if missing > sum(counts.values()):
        return NEVER_S
    for bucket in sorted(counts):
        missing -= counts[bucket]
        if missing <= 0:
            return _end_s(meter.period, bucket, now)
    return 0.0

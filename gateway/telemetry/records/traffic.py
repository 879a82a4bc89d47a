"""RouteTraffic: requests of each tenant on each route, by the hour of the last day."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gateway.telemetry.records.record import RequestRecord

HOUR_S: Final = 3600.0
HOURS: Final = 24
_MAX_PAIRS: Final = 10_000
"""Number of pairs counted in an hour; further ones count as `other`."""

Pair = tuple[str, str]
"""Tenant and route."""


class Count(msgspec.Struct, frozen=True):
    """Requests of one tenant on one route in one hour."""

    hour: int
    tenant: str
    route: str
    requests: int


class RouteTraffic:
    """Counts of one process; `wall` is the clock, in seconds since 1970."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._hour = -1
        self._now: dict[Pair, int] = {}
        self._hours: dict[int, dict[Pair, int]] = {}
        self.ctx()

    def note(self, record: RequestRecord) -> None:
        """Count a finished request; requests without a route are not counted."""
        if not record.route:
            return
        pair = (record.tenant, record.route)
        counts = self._now
        try:
            counts[pair] += 1
        except KeyError:
            counts[pair if len(counts) < _MAX_PAIRS else ("other", "other")] = 1

    def ctx(self) -> None:
        """Begin a new hour when it is time; called periodically."""
        hour = int(self._wall() // HOUR_S)
        if hour != self._hour:
            self._hour, self._now = hour, self._hours.setdefault(hour, {})
            for old in [kept for kept in self._hours if kept <= hour - HOURS]:
                del self._hours[old]

    def counts(self) -> list[Count]:
        """Return all counts."""
        return [
            Count(hour, tenant, route, requests)
            for hour, pairs in self._hours.items()
            for (tenant, route), requests in pairs.items()
        ]


def last_day(counts: list[Count], now: float) -> Mapping[Pair, int]:
    """Return the sums over the last 24 hours, from the counts of any number of processes."""
    oldest = int(now // HOUR_S) - HOURS
    sums: dict[Pair, int] = {}
    for count in counts:
        if count.hour > oldest:
            pair = (count.tenant, count.route)
            sums[pair] = sums.get(pair, 0) + count.requests
    return sums


def encode_counts(counts: list[Count]) -> bytes:
    """Encode counts for the store."""
    return msgspec.json.encode(counts)


def decode_counts(value: bytes) -> list[Count]:
    """Decode counts from the store; empty when another version wrote them in another form."""
    try:
        return msgspec.json.decode(value, type=list[Count])
    except msgspec.DecodeError:
        return []

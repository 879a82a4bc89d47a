"""RouteTraffic: how many requests of which tenant each route took, by the hour of the last day."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gateway.telemetry.records.record import RequestRecord

HOUR_S: Final = 3600.0
HOURS: Final = 24
_MAX_PAIRS: Final = 10_000
"""In an hour; further pairs are counted as `other`."""

Pair = tuple[str, str]
"""Tenant and route."""


class Count(msgspec.Struct, frozen=True):
    """One pair's requests in one hour."""

    hour: int
    tenant: str
    route: str
    requests: int


class RouteTraffic:
    """The counts of one process; `wall` is seconds since 1970."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._hour = -1
        self._now: dict[Pair, int] = {}
        self._hours: dict[int, dict[Pair, int]] = {}
        self.ctx()

    def note(self, record: RequestRecord) -> None:
        """One request is over; those that reached no route are nobody's."""
        if not record.route:
            return
        pair = (record.tenant, record.route)
        counts = self._now
        try:
            counts[pair] += 1
        except KeyError:
            counts[pair if len(counts) < _MAX_PAIRS else ("other", "other")] = 1

    def ctx(self) -> None:
        """Called every now and then: begin a new hour when it is time."""
        hour = int(self._wall() // HOUR_S)
        if hour != self._hour:
            self._hour, self._now = hour, self._hours.setdefault(hour, {})
            for old in [kept for kept in self._hours if kept <= hour - HOURS]:
                del self._hours[old]

    def counts(self) -> list[Count]:
        """Everything that is remembered."""
        return [
            Count(hour, tenant, route, requests)
            for hour, pairs in self._hours.items()
            for (tenant, route), requests in pairs.items()
        ]


def last_day(counts: list[Count], now: float) -> Mapping[Pair, int]:
    """Sums over the last 24 hours, of counts from any number of processes."""
    oldest = int(now // HOUR_S) - HOURS
    sums: dict[Pair, int] = {}
    for count in counts:
        if count.hour > oldest:
            pair = (count.tenant, count.route)
            sums[pair] = sums.get(pair, 0) + count.requests
    return sums


def encode_counts(counts: list[Count]) -> bytes:
    """For the store."""
    return msgspec.json.encode(counts)


def decode_counts(value: bytes) -> list[Count]:
    """From the store; empty when another version wrote it in another form."""
    try:
        return msgspec.json.decode(value, type=list[Count])
    except msgspec.DecodeError:
        return []

"""LastDay: traffic of all replicas over the last day, to estimate the reach of a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from gateway.store.base import Store, StoreUnavailable
from gateway.telemetry.records.recent import (
    HOUR_S,
    HOURS,
    Count,
    Pair,
    RouteTraffic,
    decode_counts,
    encode_counts,
    known_for_s,
    last_day,
)
from routing_policies.blast import BlastRadius

SPACE: Final = "traffic"
TURN_S: Final = 5.0
PUBLISH_S: Final = 30.0
_TTL_S: Final = (HOURS + 1) * HOUR_S


class TrafficReach(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the last day's traffic that a change affects."""

    share_of_last_day: float | None
    """Share of requests; None without any request."""
    requests_last_day: int
    known_for_s: float
    """Time since the first of these requests may have been counted, in seconds."""


class LastDay:
    """Own counts and those that other replicas publish, including those of ended processes."""

    def __init__(self, traffic: RouteTraffic, store: Store, *, holder: str, wall: Callable[[], float]) -> None:
        """Combine the counts of this process with those in the store; `holder` is this process' name there."""
        self._traffic = traffic
        self._store = store
        self._holder = holder
        self._wall = wall
        self._published: bytes = b""

    async def run(self) -> None:
        """Advance the hours and publish the counts, until cancelled."""
        while True:
            for _ in range(int(PUBLISH_S / TURN_S)):
                self._traffic.begin_hour()
                await asyncio.sleep(TURN_S)
            with suppress(StoreUnavailable):  # the store's observer reports it; the next write has all counts
                await self.publish()

    async def publish(self) -> None:
        """Publish this process' counts; raises StoreUnavailable."""
        value = encode_counts(self._traffic.counts())
        if value != self._published:
            await self._store.put(SPACE, self._holder, value, ttl_s=_TTL_S)
            self._published = value

    async def sums(self) -> Mapping[Pair, int]:
        """Return the last day's requests by tenant and route."""
        return last_day(await self._counts(), self._wall())

    async def reach(self, radius: BlastRadius) -> TrafficReach:
        """Return the part of the last day's traffic that a change would have affected."""
        counts, now = await self._counts(), self._wall()
        sums = last_day(counts, now)
        total = sum(sums.values())
        touched = sum(requests for (tenant, route), requests in sums.items() if radius.touches(tenant, route))
        return TrafficReach(
            share_of_last_day=touched / total if total else None,
            requests_last_day=total,
            known_for_s=known_for_s(counts, now),
        )

    async def _counts(self) -> list[Count]:
        counts = self._traffic.counts()
        with suppress(StoreUnavailable):  # without the store, only this process' own counts are available
            for holder in await self._store.keys(SPACE):
                entry = await self._store.get(SPACE, holder) if holder != self._holder else None
                counts += [] if entry is None else decode_counts(entry.value)
        return counts

"""LastDay: the traffic of all replicas over the last day, for telling how much a change would reach."""

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
    last_day,
)
from routing_policies.blast import BlastRadius

SPACE: Final = "traffic"
TURN_S: Final = 5.0
PUBLISH_S: Final = 30.0
_TTL_S: Final = (HOURS + 1) * HOUR_S


class TrafficReach(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the last day's traffic a change touches."""

    share_of_last_day: float | None
    """None when there was none."""
    requests_last_day: int
    hours_known: int
    """Hours of the last day in which anything was counted."""


class LastDay:
    """Counts are this process' own, and what the others have published; those of a process that ended count on."""

    def __init__(self, traffic: RouteTraffic, store: Store, *, holder: str, wall: Callable[[], float]) -> None:
        """`holder` names this process among all that share the store."""
        self._traffic = traffic
        self._store = store
        self._holder = holder
        self._wall = wall
        self._published: bytes = b""

    async def run(self) -> None:
        """Count by the hour, and publish; ends by cancellation."""
        while True:
            for _ in range(int(PUBLISH_S / TURN_S)):
                self._traffic.ctx()
                await asyncio.sleep(TURN_S)
            with suppress(StoreUnavailable):  # the store's observer was told; the next time says it all again
                await self.publish()

    async def publish(self) -> None:
        """Let the others know. Raises StoreUnavailable."""
        value = encode_counts(self._traffic.counts())
        if value != self._published:
            await self._store.put(SPACE, self._holder, value, ttl_s=_TTL_S)
            self._published = value

    async def sums(self) -> Mapping[Pair, int]:
        """Requests of each tenant and route."""
        return last_day(await self._counts(), self._wall())

    async def reach(self, radius: BlastRadius) -> TrafficReach:
        """How much of it a change would have touched."""
        counts = await self._counts()
        sums = last_day(counts, self._wall())
        total = sum(sums.values())
        touched = sum(requests for (tenant, route), requests in sums.items() if radius.touches(tenant, route))
        return TrafficReach(
            share_of_last_day=touched / total if total else None,
            requests_last_day=total,
            hours_known=len({count.hour for count in counts}),
        )

    async def _counts(self) -> list[Count]:
        counts = self._traffic.counts()
        with suppress(StoreUnavailable):  # this process' own are better than none
            for holder in await self._store.keys(SPACE):
                entry = await self._store.get(SPACE, holder) if holder != self._holder else None
                counts += [] if entry is None else decode_counts(entry.value)
        return counts

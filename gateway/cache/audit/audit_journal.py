"""AuditJournal: audits and what followed from them, in the store and in step with other processes.

a.REQUEST              an audit
n.PROCESS.SPAN         requests and hits of a span of time, as one process counted them
s.TENANT/ROUTE         the level of the error budget there
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from gateway.cache.audit.audit_record import AuditRecord, decode_record, encode_record
from gateway.cache.audit.audit_registry import AuditRegistry
from gateway.cache.audit.error_budget import CLOSED
from gateway.cache.audit.evidence import BUCKET_S, WINDOW_S, LookupTraffic
from gateway.cache.audit.route_stats import RouteStats, RouteStatsTable, TenantRoute
from gateway.cache.exact.sealed import seal, unseal
from gateway.store.base import Store, StoreUnavailable
from gateway.store.follower import ChangeFollower
from gateway.util.fair_bounded_dict import FairRecent
from gateway.util.next_set import until_set_again

SPACE: Final = "cache.audits"
RECORD_S: Final = 7 * 24 * 3600.0
"""Lifetime of an audit."""
TICK_S: Final = 0.5
MAX_WAITING: Final = 10_000
"""Writes that wait for the store; beyond it, the tenant with the most loses its oldest."""
_OWN: Final = ""
"""Owner of what concerns no single tenant."""

_AUDIT, _TRAFFIC, _LEVEL = "a.", "n.", "s."
_Counts = dict[str, tuple[int, int]]
_counts: Final = msgspec.json.Decoder(_Counts)


class Level(msgspec.Struct, frozen=True):
    """The level of one tenant's route, and since when."""

    level: int
    since: float


_levels: Final = msgspec.json.Decoder(Level)


class AuditJournal:
    """The audits in the store; without it all stays in memory. Methods that are not coroutines never wait or fail."""

    def __init__(
        self,
        store: Store,
        stats: AuditRegistry,
        route_stats: RouteStatsTable,
        *,
        holder: str,
        wall: Callable[[], float],
    ) -> None:
        """Set up the journal; `holder` names this process among all that share the store. The caller closes `store`."""
        self._store = store
        self._audits = stats
        self._route_stats = route_stats
        self._holder = holder
        self._wall = wall
        self._waiting: FairRecent[str, tuple[bytes, float]] = FairRecent(MAX_WAITING)
        self._written: dict[str, _Counts] = {}
        self._follower = ChangeFollower(store, SPACE, self._take, wants=self._is_from_others)
        self._has_news = asyncio.Event()

    def record(self, record: AuditRecord) -> None:
        """Have an audit written."""
        self._put(_AUDIT + record.id, encode_record(record), RECORD_S, record.tenant)

    def note_level(self, whose: TenantRoute, stats: RouteStats) -> None:
        """Have the level of a route written."""
        value = msgspec.json.encode(Level(stats.level, stats.since))
        self._put(f"{_LEVEL}{whose.tenant}/{whose.route}", seal(value), RECORD_S, whose.tenant)

    async def run(self) -> None:
        """Read the stored audits, then write and follow until cancelled."""
        while True:
            with suppress(StoreUnavailable):  # its observer has the error
                await self.follow()
                self.count_traffic()
                await self.write_pending()
            await until_set_again(self._has_news, TICK_S)

    async def write_pending(self) -> None:
        """Write what waits. Raises StoreUnavailable."""
        while self._waiting:
            for key, (value, ttl_s) in self._waiting.oldest_of_each():
                await self._store.put(SPACE, key, value, ttl_s=ttl_s)
                if self._waiting.get(key) == (value, ttl_s):
                    self._waiting.pop(key)

    async def flush(self) -> None:
        """Write what still waits, for a moment; call it when `run` has ended."""
        self.count_traffic()
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(TICK_S):
                await self.write_pending()

    async def follow(self) -> None:
        """Take what others wrote; the first time, everything. Raises StoreUnavailable."""
        await self._follower.catch_up()

    def count_traffic(self) -> None:
        """Have the counts of the current span written, where they changed."""
        bucket = int(self._wall() // BUCKET_S)
        counts: _Counts = {}
        for whose, stats in self._route_stats:
            traffic = stats.evidence.traffic(bucket * BUCKET_S)
            if traffic.num_requests:
                counts[f"{whose.tenant}/{whose.route}"] = (traffic.num_requests, traffic.num_hits)
        key = f"{_TRAFFIC}{self._holder}.{bucket}"
        if counts and self._written.get(key) != counts:
            self._written = {key: counts}
            self._put(key, seal(msgspec.json.encode(counts)), WINDOW_S, _OWN)

    def _put(self, key: str, value: bytes, ttl_s: float, owner: str) -> None:
        self._waiting.put(key, (value, ttl_s), owner)
        if not key.startswith(_TRAFFIC):
            self._has_news.set()

    def _is_from_others(self, key: str) -> bool:
        return key not in self._waiting and not key.startswith(f"{_TRAFFIC}{self._holder}.")

    async def _take(self, key: str, value: bytes | None) -> None:
        if value is None:
            return
        try:
            is_good = self._use(key, value)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
            is_good = False
        if not is_good:  # damaged, or of another version of this program
            stored = await self._store.get(SPACE, key)
            if stored is not None and stored.value == value:
                await self._store.delete(SPACE, key, expect=stored.version)

    def _use(self, key: str, sealed: bytes) -> bool:
        if key.startswith(_AUDIT):
            record = decode_record(sealed)
            if record is not None and record != self._audits.get(record.id):
                self._audits.add(record, self._wall(), is_news=False)  # its author has published what follows
            return record is not None
        value = unseal(sealed)
        if value is None:
            return False
        if key.startswith(_LEVEL):
            tenant, _, route = key.removeprefix(_LEVEL).rpartition("/")
            stored_level, stats = _levels.decode(value), self._route_stats.of(TenantRoute(tenant, route))
            stats.level, stats.since = min(max(stored_level.level, 0), CLOSED), stored_level.since
        elif key.startswith(_TRAFFIC):
            holder, _, bucket = key.removeprefix(_TRAFFIC).rpartition(".")
            for name, counts in _counts.decode(value).items():
                tenant, _, route = name.rpartition("/")
                traffic = LookupTraffic(*counts)
                self._route_stats.of(TenantRoute(tenant, route)).evidence.set_traffic(holder, int(bucket), traffic)
        return True

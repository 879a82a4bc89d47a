"""AuditJournal: audits and what followed from them, kept in the store and in step with other processes.

a.REQUEST              an audit
n.PROCESS.SPAN         requests and hits of a span of time, as one process counted them
s.TENANT/ROUTE         how much is dared there
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from gateway.cache.audit.audit_book import AuditBook
from gateway.cache.audit.audit_record import AuditRecord, decode_record, encode_record
from gateway.cache.audit.error_budget import CLOSED
from gateway.cache.audit.evidence import BUCKET_S, WINDOW_S, LookupTraffic
from gateway.cache.audit.route_stats import RouteStats, RouteStatsTable, TenantRoute
from gateway.cache.exact.sealed import seal, unseal
from gateway.store.base import Store, StoreEntry, StoreUnavailable
from gateway.util.bounded_dict import Recent

SPACE: Final = "cache.audits"
RECORD_S: Final = 7 * 24 * 3600.0
"""How long audits are remembered."""
TICK_S: Final = 0.5
MAX_WAITING: Final = 10_000
PAGE: Final = 500

_AUDIT, _TRAFFIC, _LEVEL = "a.", "n.", "s."
_Counts = dict[str, tuple[int, int]]
_counts: Final = msgspec.json.Decoder(_Counts)


class Level(msgspec.Struct, frozen=True):
    """How much one tenant's route dares, and since when."""

    level: int
    since: float


_levels: Final = msgspec.json.Decoder(Level)


class AuditJournal:
    """Methods that are not coroutines never wait and never fail; without the store everything goes on in memory."""

    def __init__(
        self, store: Store, book: AuditBook, books: RouteStatsTable, *, holder: str, wall: Callable[[], float]
    ) -> None:
        """`holder` names this process among all that share the store; the caller closes `store`."""
        self._store = store
        self._book = book
        self._books = books
        self._holder = holder
        self._wall = wall
        self._waiting: Recent[str, tuple[bytes, float]] = Recent(MAX_WAITING)
        self._written: dict[str, _Counts] = {}
        self._cursor: int | None = None
        self._has_news = asyncio.Event()

    def record(self, record: AuditRecord) -> None:
        """Have it kept."""
        self._put(_AUDIT + record.id, encode_record(record), RECORD_S)

    def note_level(self, whose: TenantRoute, book: RouteStats) -> None:
        """Have it kept how much is dared there."""
        value = msgspec.json.encode(Level(book.level, book.since))
        self._put(f"{_LEVEL}{whose.tenant}/{whose.route}", seal(value), RECORD_S)

    async def run(self) -> None:
        """Read what is known, then write and follow until cancelled."""
        while True:
            with suppress(StoreUnavailable):  # its observer was told
                await self.follow()
                self.count_traffic()
                await self.write_pending()
            self._has_news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._has_news.wait()

    async def write_pending(self) -> None:
        """Write what waits. Raises StoreUnavailable."""
        while self._waiting:
            key, (value, ttl_s) = next(iter(self._waiting.items()))
            await self._store.put(SPACE, key, value, ttl_s=ttl_s)
            if self._waiting.get(key) == (value, ttl_s):
                del self._waiting[key]

    async def flush(self) -> None:
        """Write what still waits, for a moment; call it when `run` has ended."""
        self.count_traffic()
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(TICK_S):
                await self.write_pending()

    async def follow(self) -> None:
        """Take what others wrote; the first time, everything. Raises StoreUnavailable."""
        if self._cursor is None:
            begins_at = (await self._store.changes(SPACE)).cursor
            await self._read_everything()
            self._cursor = begins_at
            return
        found = await self._store.changes(SPACE, after=self._cursor)
        if found.is_gap:
            await self._read_everything()
        for change in found.changes:
            await self._take(change.key)
        self._cursor = found.cursor

    def count_traffic(self) -> None:
        """Have the counts of the span that runs kept, where they changed."""
        bucket = int(self._wall() // BUCKET_S)
        counts: _Counts = {}
        for whose, book in self._books:
            traffic = book.evidence.traffic(bucket * BUCKET_S)
            if traffic.num_requests:
                counts[f"{whose.tenant}/{whose.route}"] = (traffic.num_requests, traffic.num_hits)
        key = f"{_TRAFFIC}{self._holder}.{bucket}"
        if counts and self._written.get(key) != counts:
            self._written = {key: counts}
            self._put(key, seal(msgspec.json.encode(counts)), WINDOW_S)

    def _put(self, key: str, value: bytes, ttl_s: float) -> None:
        self._waiting[key] = (value, ttl_s)
        if not key.startswith(_TRAFFIC):
            self._has_news.set()

    async def _read_everything(self) -> None:
        after = ""
        while True:
            page = await self._store.keys(SPACE, after=after, limit=PAGE)
            for key in page:
                await self._take(key)
            if len(page) < PAGE:
                return
            after = page[-1]

    async def _take(self, key: str) -> None:
        if key in self._waiting or key.startswith(f"{_TRAFFIC}{self._holder}."):
            return
        stored = await self._store.get(SPACE, key)
        if stored is None:
            return
        try:
            is_good = self._use(key, stored)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
            is_good = False
        if not is_good:  # damaged, or of another version of this program
            await self._store.delete(SPACE, key, expect=stored.version)

    def _use(self, key: str, stored: StoreEntry) -> bool:
        if key.startswith(_AUDIT):
            record = decode_record(stored.value)
            if record is not None and record != self._book.get(record.id):
                self._book.add(record, self._wall(), is_news=False)  # who made it has told what follows
            return record is not None
        value = unseal(stored.value)
        if value is None:
            return False
        if key.startswith(_LEVEL):
            tenant, _, route = key.removeprefix(_LEVEL).rpartition("/")
            told, book = _levels.decode(value), self._books.of(TenantRoute(tenant, route))
            book.level, book.since = min(max(told.level, 0), CLOSED), told.since
        elif key.startswith(_TRAFFIC):
            holder, _, bucket = key.removeprefix(_TRAFFIC).rpartition(".")
            for name, counts in _counts.decode(value).items():
                tenant, _, route = name.rpartition("/")
                self._books.of(TenantRoute(tenant, route)).evidence.set_traffic(
                    holder, int(bucket), LookupTraffic(*counts)
                )
        return True

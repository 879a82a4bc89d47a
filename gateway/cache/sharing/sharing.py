"""CacheSharing: keeps the exact cache of one process in step with the others', through the store.

Nothing here is on a request's path. New entries are written in the background; entries of others are read within a
moment, by following the change feed. While the store is lost every process goes on with what it has.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from gateway.cache.exact.entry import CacheEntry, decode_entry
from gateway.cache.exact.exact_cache import STALE_S, ExactCache
from gateway.cache.exact.exact_tier import Selection
from gateway.cache.sharing import notices
from gateway.cache.sharing.notices import SPACE, Notice, Quarantine, WrongReport
from gateway.cache.sharing.store_shares import StoreShares
from gateway.cache.sharing.write_queue import SharingEvent, StoreWriteQueue
from gateway.store.base import Store, StoreChange, StoreEntry, StoreUnavailable

FOLLOW_S: Final = 0.2
"""Time between two reads of the feed."""
RETRY_S: Final = 0.5
"""Time between two tries of a store that is lost."""
PAGE: Final = 500
READS: Final = 16
"""Number of reads at the same time."""
FLUSH_S: Final = 0.5
"""Time that a process which ends may spend on writes that still wait."""
_MAX_PURGES: Final = 256


class CacheSharing:
    """One process's side of the sharing. Methods that are not coroutines never wait and never fail."""

    def __init__(
        self,
        local: ExactCache,
        store: Store,
        *,
        wall: Callable[[], float],
        new_name: Callable[[], str],
        count: Callable[[SharingEvent], None],
        is_mirror: bool = False,
        is_alone: bool = False,
        max_bytes: int | None = None,
    ) -> None:
        """Share a cache through a store, which the caller closes.

        Args:
            local: The cache of this process.
            store: The store.
            wall: Seconds since 1970.
            new_name: Makes names that no other process makes.
            count: Counts what became of everything shared.
            is_mirror: Whether an entry that is evicted here leaves the store, too.
            is_alone: Whether no other process writes there.
            max_bytes: Memory of all entries in the store; None for no bound.
        """
        self._local = local
        self._store = store
        self._wall = wall
        self._new_name = new_name
        self._count = count
        self._is_mirror = is_mirror
        self._is_alone = is_alone
        self._shares = None
        if max_bytes is not None:
            self._shares = StoreShares(max_bytes, room=lambda: store.room(), num_hits=local.tier.num_hits, wall=wall)
        self._queue = StoreWriteQueue(store, wall=wall, count=count, shares=self._shares)
        self._cursor: int | None = None
        self._purges: deque[Selection] = deque(maxlen=_MAX_PURGES)
        self._unswept: deque[Selection] = deque()
        self._may_sweep = asyncio.Event()
        self.keeps_stale = False
        """True if the store keeps entries for as long as an expired one may be served."""
        self.takes_entries: Callable[[], bool] = lambda: True
        """True if entries of other processes are taken now, beside notices."""
        self._has_taken_entries = False

    @property
    def is_caught_up(self) -> bool:
        """Return whether the whole store was read once."""
        return self._cursor is not None

    # Events of this process.

    def stored(self, entry: CacheEntry, fresh_until: float) -> None:
        """Share a new entry."""
        self._queue.put_entry(entry, entry.expires_at if self.keeps_stale else fresh_until)

    def evicted(self, exact: bytes) -> None:
        """Share that an entry was evicted here."""
        if self._is_mirror:
            self._queue.put_removal(notices.entry_key(exact))

    def quarantined(self, exact: bytes, digest: bytes, until: float) -> None:
        """Share that a response is wrong."""
        quarantine = Quarantine(exact, digest, until)
        self._queue.take_back(notices.entry_key(exact))
        self._queue.put_notice(
            notices.quarantine_key(quarantine), notices.encode_notice(notices.QUARANTINE, quarantine), until
        )

    def purged(self, selection: Selection) -> None:
        """Share a purge."""
        purge = selection
        if purge.until is None:
            purge = msgspec.structs.replace(selection, until=self._wall())
        self._remember(purge)
        self._unswept.append(purge)
        self._may_sweep.set()
        key = notices.PURGE + self._new_name()
        self._queue.put_notice(key, notices.encode_notice(notices.PURGE, purge), self._wall() + notices.PURGE_S)

    def doubted(self, request_id: str, tenant: str) -> bool:
        """Share feedback on a response that this process does not have; return False without other processes."""
        if self._is_alone:
            return False
        key, doubt = notices.DOUBT + self._new_name(), WrongReport(request_id, tenant)
        self._queue.put_notice(key, notices.encode_notice(notices.DOUBT, doubt), self._wall() + notices.DOUBT_S)
        return True

    # In the background.

    async def write(self) -> None:
        """Write what waits, until cancelled."""
        while True:
            await self._queue.work()
            if not await self._queue.flush():
                await asyncio.sleep(RETRY_S)

    async def follow(self) -> None:
        """Take what others write, until cancelled; without others, until the store was read once."""
        while True:
            with suppress(StoreUnavailable):  # the store's observer has the error; missed changes are read later
                await self.catch_up()
                if self._is_alone:
                    return
            await asyncio.sleep(FOLLOW_S)

    async def sweep_all(self) -> None:
        """Delete what purges cover from the store, until cancelled."""
        while True:
            await self._may_sweep.wait()
            try:
                while self._unswept:
                    await self.sweep(self._unswept[0])
                    self._unswept.popleft()
                self._may_sweep.clear()
            except StoreUnavailable:  # as above; the purge itself is remembered by everyone
                await asyncio.sleep(RETRY_S)

    async def flush(self) -> None:
        """Write what still waits, for a moment; call it when `write` has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                while self._queue.num_waiting and await self._queue.flush():
                    pass

    async def catch_up(self) -> None:
        """Take what others wrote since the last time; the first time, everything. Raises StoreUnavailable."""
        if self._cursor is None or (self.takes_entries() and not self._has_taken_entries):
            begins_at = (await self._store.changes(SPACE)).cursor
            await self._read_everything()
            self._cursor = begins_at
            return
        while True:
            found = await self._store.changes(SPACE, after=self._cursor)
            if found.is_gap:  # away for too long, or the store began anew
                await self._read_everything()
            await self._take_keys([change.key for change in found.changes if not self._is_own(change)])
            self._cursor = found.cursor
            if not found.changes:
                return

    async def sweep(self, purge: Selection) -> None:
        """Delete the entries that a purge covers from the store. Raises StoreUnavailable."""
        async for page in self._pages(notices.ENTRY):
            async for key, stored in self._read(page):
                entry = None if stored is None else decode_entry(stored.value)
                if stored is not None and entry is not None and purge.covers(entry):
                    await self._store.delete(SPACE, key, expect=stored.version)

    # Reading.

    async def _read_everything(self) -> None:
        """Take purges and quarantines first, so that nothing they cover is taken, then entries while there is room.

        A mirror drops the other entries, so that its store does not grow from start to start. Where the store has a
        memory limit, all are read to count them.
        """
        for prefix in (notices.PURGE, notices.QUARANTINE, notices.DOUBT):
            async for page in self._pages(prefix):
                await self._take_keys(page)
        self._has_taken_entries = self.takes_entries()
        if not self._has_taken_entries:
            return
        async for page in self._pages(notices.ENTRY):
            unknown = [key for key in page if notices.exact_of(key) not in self._local.tier]
            if not self._local.tier.is_full:
                await self._take_keys(unknown)
            elif self._is_mirror:
                for key in unknown:
                    self._queue.put_removal(key)
            elif self._shares is not None:
                await self._count_keys(unknown)
            else:
                return

    async def _pages(self, prefix: str) -> AsyncIterator[list[str]]:
        """Yield all keys with this prefix, some at a time."""
        after = prefix
        while True:
            found = await self._store.keys(SPACE, after=after, limit=PAGE)
            page = [key for key in found if key.startswith(prefix)]
            if page:
                yield page
            if len(page) < PAGE:
                return
            after = page[-1]

    def _is_own(self, change: StoreChange) -> bool:
        return self._queue.wrote(change.key, change.version)

    async def _take_keys(self, keys: Sequence[str]) -> None:
        if not self._has_taken_entries:
            keys = [key for key in keys if not key.startswith(notices.ENTRY)]
        async for key, stored in self._read(keys):
            if stored is not None:
                await self._take(key, stored)
            elif (exact := notices.exact_of(key)) is not None and not self._queue.removed(key):
                self._gone(exact)

    async def _count_keys(self, keys: Sequence[str]) -> None:
        """Count entries that have no room here."""
        async for key, stored in self._read(keys):
            entry = None if stored is None else decode_entry(stored.value)
            if stored is not None and entry is not None and entry.exact == notices.exact_of(key):
                self._note(entry, stored)

    def _gone(self, exact: bytes) -> None:
        """Forget an entry that left the store, unless it was evicted there and is in use here.

        Purges and feedback have notices of their own.
        """
        if self._shares is not None:
            self._shares.forget(exact)
            if self._local.tier.num_hits(exact):
                return
        self._local.tier.discard(exact)

    def _note(self, entry: CacheEntry, stored: StoreEntry) -> None:
        if self._shares is not None:
            self._shares.note(entry, len(stored.value), max(entry.expires_at - STALE_S, self._wall() + FOLLOW_S))

    async def _read(self, keys: Sequence[str]) -> AsyncIterator[tuple[str, StoreEntry | None]]:
        """Yield the keys with their values, read a few at a time for the event loop's sake."""
        for begin in range(0, len(keys), READS):
            some = keys[begin : begin + READS]
            found = await asyncio.gather(*(self._store.get(SPACE, key) for key in some))
            for key, stored in zip(some, found, strict=True):
                yield key, stored

    async def _take(self, key: str, stored: StoreEntry) -> None:
        if not notices.has_meaning(key):
            return
        if not key.startswith(notices.ENTRY):
            notice = notices.decode_notice(key, stored.value)
            if notice is None:
                await self._throw_out(key, stored)
            else:
                self._obey(notice)
            return
        entry = decode_entry(stored.value)
        if entry is None or entry.exact != notices.exact_of(key):
            await self._throw_out(key, stored)
        elif not any(purge.covers(entry) for purge in self._purges):
            self._note(entry, stored)
            self._local.take(entry)
            self._count("taken")

    async def _throw_out(self, key: str, stored: StoreEntry) -> None:
        """Delete a value that is damaged, or of another version of this program."""
        self._count("corrupt")
        await self._store.delete(SPACE, key, expect=stored.version)

    def _obey(self, notice: Notice) -> None:
        if isinstance(notice, Selection):
            self._remember(notice)
            self._local.take_purge(notice)
            self._count("purged")
        elif isinstance(notice, Quarantine):
            self._local.take_quarantine(notice.exact, notice.digest, notice.until)
            self._count("quarantined")
        else:
            self._local.take_doubt(notice.request_id, notice.tenant)

    def _remember(self, purge: Selection) -> None:
        self._purges.append(purge)
        for entry in self._queue.waiting():
            if purge.covers(entry):
                self._queue.take_back(notices.entry_key(entry.exact))

"""StoreWriteQueue: the cache's writes to the store, in bounded memory, off every request's path."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Literal

from gateway.cache.exact.entry import CacheEntry, encode_entry
from gateway.cache.sharing.notices import SPACE, entry_key
from gateway.cache.sharing.store_shares import StoreShares
from gateway.cache.sharing.waiting_entries import WaitingEntries
from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.util.bounded_dict import Recent

SharingEvent = Literal["written", "taken", "purged", "quarantined", "dropped", "corrupt"]
"""The outcome of a shared write; a metric label."""

MAX_ENTRY_BYTES: Final = 256 * 1024
"""Length of one shared entry; a longer one stays with its process."""
MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
MAX_NOTICES: Final = 1000
MAX_REMOVALS: Final = 10_000
BATCH: Final = 16
"""Number of writes at the same time."""
MAX_TRIES: Final = 3
"""Number of tries for an entry that the store was sent and did not take."""
_MAX_KNOWN: Final = 4096
_GONE: Final = 0
"""Mark in place of the version of an entry that this process removed."""


class _StoreWrite:
    """One write of an entry or of a notice."""

    __slots__ = ("ends_at", "entry", "key", "num_tries", "value")

    def __init__(self, key: str, ends_at: float, *, entry: CacheEntry | None = None, value: bytes = b"") -> None:
        self.key = key
        self.ends_at = ends_at
        self.entry = entry
        self.value = value
        self.num_tries = 0


class StoreWriteQueue:
    """Writes in order: entries and removals may be dropped, oldest first; notices wait until they are written."""

    def __init__(
        self,
        store: Store,
        *,
        wall: Callable[[], float],
        count: Callable[[SharingEvent], None],
        shares: StoreShares | None = None,
    ) -> None:
        """Set up the queue; `shares` bounds the entries' memory in the store, None for no bound."""
        self._shares = shares
        self._one_by_one = asyncio.Lock()
        """Held by a write to a server with a memory limit: each is in its connection's buffer as well."""
        self._store = store
        self._wall = wall
        self._count = count
        self._entries: WaitingEntries[_StoreWrite] = WaitingEntries(MAX_WAITING_BYTES)
        self._notices: OrderedDict[str, _StoreWrite] = OrderedDict()
        self._removals: Recent[str, None] = Recent(MAX_REMOVALS)
        self._versions: Recent[str, int] = Recent(_MAX_KNOWN)
        self._has_work = asyncio.Event()

    @property
    def num_waiting(self) -> int:
        """Number of writes that were not made yet."""
        return len(self._entries) + len(self._notices) + len(self._removals)

    def put_entry(self, entry: CacheEntry, ends_at: float) -> None:
        """Have an entry written, in place of an older one that still waits."""
        if entry.num_bytes > MAX_ENTRY_BYTES:
            self._count("dropped")
            return
        write = _StoreWrite(entry_key(entry.exact), ends_at, entry=entry)
        self._removals.pop(write.key, None)
        for _ in self._entries.add(write):
            self._count("dropped")
        self._has_work.set()

    def put_notice(self, key: str, value: bytes, ends_at: float) -> None:
        """Have a notice written, before any entry."""
        self._notices[key] = _StoreWrite(key, ends_at, value=value)
        if len(self._notices) > MAX_NOTICES:
            self._notices.popitem(last=False)
            self._count("dropped")
        self._has_work.set()

    def put_removal(self, key: str) -> None:
        """Have an entry removed."""
        self.take_back(key)
        self._removals[key] = None
        self._has_work.set()

    def take_back(self, key: str) -> None:
        """Drop an entry that waits."""
        self._entries.pop(key)

    def waiting(self) -> list[CacheEntry]:
        """Return the entries that are not written yet."""
        return [write.entry for write in self._entries if write.entry is not None]

    def wrote(self, key: str, version: int) -> bool:
        """Return whether this process made that write, as far as it remembers."""
        return self._versions.get(key) == version

    def removed(self, key: str) -> bool:
        """Return whether this process's last change of the key, as far as it remembers, was to remove it."""
        return self._versions.get(key) == _GONE

    async def work(self) -> None:
        """Wait until there is something to write."""
        if not self.num_waiting:
            self._has_work.clear()
            await self._has_work.wait()

    async def flush(self) -> bool:
        """Write a batch; return False when the store did not take everything."""
        batch = [self._notices.popitem(last=False)[1] for _ in range(min(BATCH, len(self._notices)))]
        while len(batch) < BATCH and (write := self._entries.take()) is not None:
            batch.append(write)
        removals = [self._removals.popitem(last=False)[0] for _ in range(min(BATCH, len(self._removals)))]
        return all(await asyncio.gather(*map(self._send, batch), *map(self._remove, removals)))

    async def _send(self, write: _StoreWrite) -> bool:
        ttl_s = write.ends_at - self._wall()
        if ttl_s <= 0:
            return True
        try:
            if write.entry is None:
                version = await self._store.put(SPACE, write.key, write.value, ttl_s=ttl_s)
            else:
                version = await self._share(write.entry, write.key, write.ends_at, ttl_s)
                if version is None:
                    self._count("dropped")
                    return True
        except StoreUnavailable as error:
            if error.reason is StoreLoss.FULL and write.entry is not None:
                self._count("dropped")  # another try finds it as full
                return True
            write.num_tries += error.was_sent and error.reason is not StoreLoss.DOWN
            self._return(write)
            return False
        except asyncio.CancelledError:  # the process ends: it is written at the flush, perhaps once more
            self._return(write)
            raise
        if version is not None:
            self._remember(write.key, version)
        self._count("written")
        return True

    async def _share(self, entry: CacheEntry, key: str, ends_at: float, ttl_s: float) -> int | None:
        """Write an entry; return its version, or None when it has no stored form, or the store no room for it."""
        try:
            value = encode_entry(entry)
        except (OverflowError, TypeError, ValueError):  # a member that the stored form cannot hold
            return None
        if self._shares is None:
            return await self._store.put(SPACE, key, value, ttl_s=ttl_s)
        if self._shares.is_bounded:
            async with self._one_by_one:
                return await self._write(entry, key, value, ends_at, ttl_s)
        return await self._write(entry, key, value, ends_at, ttl_s)

    async def _write(self, entry: CacheEntry, key: str, value: bytes, ends_at: float, ttl_s: float) -> int | None:
        """Remove entries that are worth less, then write this one."""
        shares = self._shares
        assert shares is not None, "somebody counts"
        is_let_in, gone = await shares.let_in(entry, len(value), ends_at)
        version = None
        try:
            for exact in gone:
                await self._remove(entry_key(exact))
            if is_let_in:
                version = await self._store.put(SPACE, key, value, ttl_s=ttl_s)
        finally:
            if is_let_in:
                shares.written(len(value))
            if version is None:
                shares.forget(entry.exact)
        return version

    async def _remove(self, key: str) -> bool:
        self._remember(key, _GONE)
        try:
            await self._store.delete(SPACE, key)
        except StoreUnavailable:  # it ends by itself, at its time
            return False
        return True

    def _remember(self, key: str, version: int) -> None:
        self._versions[key] = version

    def _return(self, write: _StoreWrite) -> None:
        """Put a write back where it was, unless a newer one has come or its tries are used up."""
        if write.entry is None:
            self._notices.setdefault(write.key, write)
        elif write.key not in self._entries and write.num_tries < MAX_TRIES:
            for _ in self._entries.add(write, is_first=True):
                self._count("dropped")
        else:
            self._count("dropped")

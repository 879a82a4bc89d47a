"""StoreWriteQueue: what the cache wants written to the store, in bounded memory, off every request's path."""

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
"""What became of something shared; a metric label."""

MAX_ENTRY_BYTES: Final = 256 * 1024
"""Of one shared entry; a longer one stays with its process."""
MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
MAX_NOTICES: Final = 1000
MAX_REMOVALS: Final = 10_000
BATCH: Final = 16
"""Written at the same time."""
MAX_TRIES: Final = 3
"""Of an entry that the store was sent and did not take."""
_MAX_KNOWN: Final = 4096


_GONE: Final = 0
"""In place of a version: this process removed it."""


class _Letter:
    """One write."""

    __slots__ = ("ends_at", "entry", "key", "num_tries", "value")

    def __init__(self, key: str, ends_at: float, *, entry: CacheEntry | None = None, value: bytes = b"") -> None:
        self.key = key
        self.ends_at = ends_at
        self.entry = entry
        self.value = value
        self.num_tries = 0


class StoreWriteQueue:
    """Entries and removals may be dropped, oldest first; notices wait for as long as it takes."""

    def __init__(
        self,
        store: Store,
        *,
        wall: Callable[[], float],
        count: Callable[[SharingEvent], None],
        shares: StoreShares | None = None,
    ) -> None:
        """`shares` bounds what entries take up in the store; None: nothing does."""
        self._shares = shares
        self._one_by_one = asyncio.Lock()
        """Held by a write to a server with a bound: each is in its connection's buffer as well."""
        self._store = store
        self._wall = wall
        self._count = count
        self._entries: WaitingEntries[_Letter] = WaitingEntries(MAX_WAITING_BYTES)
        self._notices: OrderedDict[str, _Letter] = OrderedDict()
        self._removals: Recent[str, None] = Recent(MAX_REMOVALS)
        self._versions: Recent[str, int] = Recent(_MAX_KNOWN)
        self._has_work = asyncio.Event()

    @property
    def num_waiting(self) -> int:
        """Writes that were not made yet."""
        return len(self._entries) + len(self._notices) + len(self._removals)

    def put_entry(self, entry: CacheEntry, ends_at: float) -> None:
        """Have it written; in place of an older one that still waits."""
        if entry.num_bytes > MAX_ENTRY_BYTES:
            self._count("dropped")
            return
        letter = _Letter(entry_key(entry.exact), ends_at, entry=entry)
        self._removals.pop(letter.key, None)
        for _ in self._entries.add(letter):
            self._count("dropped")
        self._has_work.set()

    def put_notice(self, key: str, value: bytes, ends_at: float) -> None:
        """Have it written, before any entry."""
        self._notices[key] = _Letter(key, ends_at, value=value)
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
        """An entry that waits is not to be written after all."""
        self._entries.pop(key)

    def waiting(self) -> list[CacheEntry]:
        """Entries that are not written yet."""
        return [letter.entry for letter in self._entries if letter.entry is not None]

    def wrote(self, key: str, version: int) -> bool:
        """Whether this process made that write, as far as it remembers."""
        return self._versions.get(key) == version

    def removed(self, key: str) -> bool:
        """Whether the last thing that this process did to it, as far as it remembers, was to remove it."""
        return self._versions.get(key) == _GONE

    async def work(self) -> None:
        """Return once something waits."""
        if not self.num_waiting:
            self._has_work.clear()
            await self._has_work.wait()

    async def flush(self) -> bool:
        """Write what waits, a batch of it; False when the store did not take everything."""
        batch = [self._notices.popitem(last=False)[1] for _ in range(min(BATCH, len(self._notices)))]
        while len(batch) < BATCH and (letter := self._entries.take()) is not None:
            batch.append(letter)
        removals = [self._removals.popitem(last=False)[0] for _ in range(min(BATCH, len(self._removals)))]
        return all(await asyncio.gather(*map(self._send, batch), *map(self._remove, removals)))

    async def _send(self, letter: _Letter) -> bool:
        ttl_s = letter.ends_at - self._wall()
        if ttl_s <= 0:
            return True
        try:
            if letter.entry is None:
                version = await self._store.put(SPACE, letter.key, letter.value, ttl_s=ttl_s)
            else:
                version = await self._share(letter.entry, letter.key, letter.ends_at, ttl_s)
                if version is None:
                    self._count("dropped")
                    return True
        except StoreUnavailable as error:
            if error.reason is StoreLoss.FULL and letter.entry is not None:
                self._count("dropped")  # it will not be less full for asking again
                return True
            letter.num_tries += error.was_sent and error.reason is not StoreLoss.DOWN
            self._return(letter)
            return False
        except asyncio.CancelledError:  # the process goes: it is written with the last words, perhaps once more
            self._return(letter)
            raise
        if version is not None:
            self._remember(letter.key, version)
        self._count("written")
        return True

    async def _share(self, entry: CacheEntry, key: str, ends_at: float, ttl_s: float) -> int | None:
        """Write the entry; None when the store has no room for it."""
        value = encode_entry(entry)
        if self._shares is None:
            return await self._store.put(SPACE, key, value, ttl_s=ttl_s)
        if self._shares.is_bounded:
            async with self._one_by_one:
                return await self._write(entry, key, value, ends_at, ttl_s)
        return await self._write(entry, key, value, ends_at, ttl_s)

    async def _write(self, entry: CacheEntry, key: str, value: bytes, ends_at: float, ttl_s: float) -> int | None:
        """Write the entry, once others that are worth less have been removed."""
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

    def _return(self, letter: _Letter) -> None:
        """Back where it was, unless a newer one has come or the store will not have it."""
        if letter.entry is None:
            self._notices.setdefault(letter.key, letter)
        elif letter.key not in self._entries and letter.num_tries < MAX_TRIES:
            for _ in self._entries.add(letter, is_first=True):
                self._count("dropped")
        else:
            self._count("dropped")

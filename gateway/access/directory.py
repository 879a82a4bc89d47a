"""Directory: the store's space of keys, admins and tokens; reads are from memory, writes wait for their own echo.

Theory of operation. Nothing in the space is ever deleted, and two states of one record always join to the same one
(`records.py`). What this process knows is the join of all it was told; where the store says less than that, because it
came back empty or as it was some time ago, it is given what it lacks, each record over the version that was looked at,
so that of many who give back at once one does it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gateway.access.accounts import Accounts, Admin, ApiToken
from gateway.access.api_keys import StoredKey, StoredKeys
from gateway.access.local_copy import AccessCopy, kept_of
from gateway.access.records import Record, following_record, has_expired, joined, name_of, read_record
from gateway.access.restored import Restored
from gateway.store.base import Store, StoreEntry, StoreLoss, StoreUnavailable
from gateway.store.follower import FOLLOW_S, ChangeFollower

SPACE: Final = "access"
ORIGIN: Final = "origin"
"""A name that a store gets with its first record, to tell it from others."""
_TRIES: Final = 20
"""Others may write at the same moment."""


async def _silent(restored: Restored) -> None:
    """Nobody is told."""


class Directory:
    """One for each process. Writers raise StoreUnavailable, and then nothing was changed as far as anybody knows."""

    def __init__(
        self,
        store: Store,
        wall: Callable[[], float],
        *,
        copy: Path,
        on_restored: Callable[[Restored], Awaitable[None]] = _silent,
        on_ignored: Callable[[Path], None] = lambda path: None,
        on_unreadable: Callable[[str, Exception], None] = lambda name, error: None,
    ) -> None:
        """`copy`: a file that remembers all of it, by its hashes, for a store that is lost or has lost it.

        `on_restored` hears what this process gave back, again later when it raises StoreUnavailable; `on_ignored` of
        a copy that is another store's; `on_unreadable` of a record that stays as it was known before.
        """
        self._store = store
        self._wall = wall
        self._copy = AccessCopy(copy)
        self._on_restored = on_restored
        self._on_ignored = on_ignored
        self._on_unreadable = on_unreadable
        self.keys = StoredKeys(wall)
        self.accounts = Accounts(wall)
        self._follower = ChangeFollower(store, SPACE, self._take)
        self._known: dict[str, Record] = {}
        self._owed: set[str] = set()
        """Records of which the store says less than is known."""
        self._origin: str | None = None
        self._is_copied = True
        self._restored = Restored()
        self.ctx = asyncio.Lock()
        """Held by whoever looks at the store."""

    @property
    def is_known(self) -> bool:
        """Whether the store was read at least once: before that nobody can say that there are no admins."""
        return self._follower.has_read

    async def load(self) -> None:
        """Read everything; what was known the last time, and StoreUnavailable, when that cannot be."""
        kept = await asyncio.to_thread(self._copy.read)
        if kept is not None:
            self._origin = kept.origin
            for record in kept.records:
                self._learn(name_of(record), record)
            self._owed.update(self._known)
        await self._catch_up()
        await self._save()

    async def run(self) -> None:
        """Follow the store for ever; ends by cancellation."""
        while True:
            with suppress(StoreUnavailable):  # the store's observer was told; what was missed is read later
                await self._catch_up()
            await self._save()
            await asyncio.sleep(FOLLOW_S)

    async def put_key(self, key: StoredKey, *, is_new: bool) -> bool:
        """Whether it was written; False when a new one has the name of another."""
        return await self._put(key, is_new=is_new)

    async def put_admin(self, admin: Admin, *, is_new: bool) -> bool:
        """As `put_key`; a new one may have the name of one who was deleted."""
        return await self._put(admin, is_new=is_new)

    async def put_token(self, token: ApiToken) -> bool:
        """As `put_key`."""
        return await self._put(token, is_new=True)

    async def delete_admin(self, admin: Admin) -> None:
        """Nobody logs in as it any more, whatever state the store may come back in."""
        await self._put(admin.deleted(self._wall()), is_new=False)

    async def delete_token(self, token: ApiToken) -> None:
        """As `delete_admin`."""
        await self._put(token.deleted(self._wall()), is_new=False)

    async def _put(self, record: Record, *, is_new: bool) -> bool:
        await self._catch_up()  # what the store lost goes back first, so that nothing is made over it
        await self._mark()
        for _ in range(_TRIES):
            entry = await self._store.get(SPACE, name_of(record))
            before = None if entry is None else self._read(name_of(record), entry.value)
            if is_new and entry is not None and not (isinstance(before, Admin) and has_expired(before)):
                return False
            wanted = following_record(before, record) if is_new else joined(before, record)
            if await self._write(wanted, entry):
                await self._catch_up()
                await self._save()
                return True
        raise StoreUnavailable(StoreLoss.SLOW, f"{_TRIES} others wrote at the same time; try again")

    async def _catch_up(self) -> None:
        async with self.ctx:
            if not self._follower.has_read:
                await self._compare_origins()
            await self._follower.catch_up()
            if self._owed:
                await self._mark()
            for name in tuple(self._owed):
                await self._give_back(name)
            if self._restored:
                told, self._restored = self._restored, Restored()
                try:
                    await self._on_restored(told)
                except StoreUnavailable:
                    self._restored += told
                    raise

    async def _compare_origins(self) -> None:
        """Before the first reading: what was kept of another store is not this one's."""
        entry = await self._store.get(SPACE, ORIGIN)
        if entry is None:
            return
        origin = _mark_in(entry.value)
        if self._known and origin != self._origin:
            self._forget_everything()
            self._on_ignored(self._copy.path)
        self._origin = origin

    async def _mark(self) -> None:
        """The store has its mark."""
        origin = self._origin or secrets.token_hex(8)
        if await self._store.put(SPACE, ORIGIN, origin.encode(), expect=0) is None:
            entry = await self._store.get(SPACE, ORIGIN)
            origin = origin if entry is None else _mark_in(entry.value)
        self._is_copied = self._is_copied and origin == self._origin
        self._origin = origin

    async def _give_back(self, name: str) -> None:
        """Write what is known here over what the store has; whoever is faster is heard through the feed."""
        entry = await self._store.get(SPACE, name)
        theirs = None if entry is None else self._read(name, entry.value)
        if entry is not None and theirs is None:
            self._owed.discard(name)
            return
        wanted = joined(theirs, self._known[name])
        if wanted != theirs:
            if not await self._write(wanted, entry):
                return
            self._restored = self._restored.and_one(wanted)
        self._owed.discard(name)
        self._learn(name, wanted)

    async def _write(self, record: Record, over: StoreEntry | None) -> bool:
        expect = 0 if over is None else over.version
        value = msgspec.json.encode(record)
        return await self._store.put(SPACE, name_of(record), value, expect=expect) is not None

    async def _take(self, name: str, value: bytes | None) -> None:
        if name == ORIGIN:
            self._origin = self._origin if value is None else _mark_in(value)
        elif value is None:
            self._owed.update({name} & self._known.keys())
        elif (record := self._read(name, value)) is not None:
            self._learn(name, record)
            self._owed.discard(name)
            if self._known[name] != record:
                self._owed.add(name)

    def _read(self, name: str, value: bytes) -> Record | None:
        """None for what is not, or no longer, readable; that stays as it was known."""
        try:
            return read_record(name, value)
        except msgspec.DecodeError as error:
            self._on_unreadable(name, error)
            return None

    def _learn(self, name: str, record: Record) -> None:
        record = joined(self._known.get(name), record)
        if self._known.get(name) == record:
            return
        self._known[name] = record
        self._is_copied = False
        self._show(name, record)

    def _show(self, name: str, record: Record, *, is_there: bool = True) -> None:
        match record:
            case StoredKey():
                self.keys.take(name, record if is_there else None)
            case Admin():
                self.accounts.take_admin(record.name, record if is_there else None)
            case ApiToken():
                self.accounts.take_token(record.sha256, record if is_there else None)

    def _forget_everything(self) -> None:
        for name, record in self._known.items():
            self._show(name, record, is_there=False)
        self._known.clear()
        self._owed.clear()
        self._is_copied = False

    async def _save(self) -> None:
        if not self._is_copied:
            self._is_copied = True
            kept = kept_of(self._known.values(), self._origin)
            await asyncio.to_thread(self._copy.write, kept)


def _mark_in(value: bytes) -> str:
    return value.decode(errors="replace")

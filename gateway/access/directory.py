"""Directory: keys, admins and tokens from the store; reads are from memory, writes wait until the feed returns them.

The directory never deletes a record. Two states of one record always join to the same state (`records.py`). This
process holds the join of all states it has seen. A store that comes back empty or older lacks some of them. The
directory writes those back, each conditional on the version it read, so one of several replicas succeeds.
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
from gateway.access.key_requirement import KeyRequirement
from gateway.access.local_copy import AccessCopy, saved_of
from gateway.access.records import Record, encode_record, following_record, has_expired, joined, name_of, read_record
from gateway.access.restored import Restored
from gateway.store.base import Store, StoreEntry, StoreLoss, StoreUnavailable
from gateway.store.follower import FOLLOW_S, ChangeFollower

SPACE: Final = "access"
ORIGIN: Final = "origin"
"""Name of the mark that identifies a store, written with its first record."""
_TRIES: Final = 20
"""Attempts at a conditional write while other replicas write too."""


async def _silent(restored: Restored) -> None:
    """Ignore restored records; the default callback."""


class Directory:
    """Keys, admins and tokens of the store, one directory a process.

    Writers raise StoreUnavailable; a failed write has changed nothing that this process can see.
    """

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
        """Create an empty directory; `load` fills it.

        Args:
            store: The store to follow.
            wall: Wall clock, in seconds since 1970.
            copy: File that keeps all records, as hashes, for a store that is lost or has lost them.
            on_restored: Called with the counts of restored records; called again later if it raises StoreUnavailable.
            on_ignored: Called with the path of a copy that belongs to another store.
            on_unreadable: Called with name and error of an unreadable record, which keeps its last readable state.
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
        """Names of records whose state in the store is older than the state in memory."""
        self._origin: str | None = None
        self._is_copied = True
        self._restored = Restored()
        self.lock = asyncio.Lock()
        """Lock held while the store is read and restored."""

    @property
    def is_known(self) -> bool:
        """True if the store has been read at least once; before that, an absence of admins is no fact."""
        return self._follower.has_read

    async def load(self) -> None:
        """Read the copy on disk, then everything in the store.

        Raises:
            StoreUnavailable: The store cannot be read; the records of the copy are in force.
        """
        saved = await asyncio.to_thread(self._copy.read)
        if saved is not None:
            self._origin = saved.origin
            for record in saved.records:
                self._learn(name_of(record), record)
            self._owed.update(self._known)
        await self._catch_up()
        await self._save()

    async def run(self) -> None:
        """Follow the store until cancelled."""
        while True:
            with suppress(StoreUnavailable):  # the store's observer reports it, and missed changes are read later
                await self._catch_up()
            await self._save()
            await asyncio.sleep(FOLLOW_S)

    async def put_key(self, key: StoredKey, *, is_new: bool) -> bool:
        """Write a key; return False when a new one has the name of an existing one."""
        return await self._put(key, is_new=is_new)

    async def require_keys(self, *, is_required: bool, by: str) -> None:
        """Write the decision whether programs on this machine need a key."""
        await self._catch_up()
        before = self.keys.requirement
        number = 1 if before is None else before.number + 1
        decision = KeyRequirement(is_required=is_required, number=number, changed_at=self._wall(), changed_by=by)
        await self._put(decision, is_new=False)

    async def put_admin(self, admin: Admin, *, is_new: bool) -> bool:
        """Write an admin; return False when a new one has the name of an existing one that is not deleted."""
        return await self._put(admin, is_new=is_new)

    async def put_token(self, token: ApiToken) -> bool:
        """Write a new token; return False when it exists already."""
        return await self._put(token, is_new=True)

    async def delete_admin(self, admin: Admin) -> None:
        """Mark an admin as deleted; no later state of the store restores the login."""
        await self._put(admin.deleted(self._wall()), is_new=False)

    async def delete_token(self, token: ApiToken) -> None:
        """Mark a token as deleted; no later state of the store restores it."""
        await self._put(token.deleted(self._wall()), is_new=False)

    async def _put(self, record: Record, *, is_new: bool) -> bool:
        await self._catch_up()  # restore lost records first, so no new record takes their names
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
        async with self.lock:
            if not self._follower.has_read:
                await self._compare_origins()
            await self._follower.catch_up()
            if self._owed:
                await self._mark()
            for name in tuple(self._owed):
                await self._give_back(name)
            if self._restored:
                restored_state, self._restored = self._restored, Restored()
                try:
                    await self._on_restored(restored_state)
                except StoreUnavailable:
                    self._restored += restored_state
                    raise

    async def _compare_origins(self) -> None:
        """Discard the records of the copy when they belong to another store; runs before the first reading."""
        entry = await self._store.get(SPACE, ORIGIN)
        if entry is None:
            return
        origin = _mark_in(entry.value)
        if self._known and origin != self._origin:
            self._forget_everything()
            self._on_ignored(self._copy.path)
        self._origin = origin

    async def _mark(self) -> None:
        """Write the store's mark unless it has one."""
        origin = self._origin or secrets.token_hex(8)
        if await self._store.put(SPACE, ORIGIN, origin.encode(), expect=0) is None:
            entry = await self._store.get(SPACE, ORIGIN)
            origin = origin if entry is None else _mark_in(entry.value)
        self._is_copied = self._is_copied and origin == self._origin
        self._origin = origin

    async def _give_back(self, name: str) -> None:
        """Write the record over the store's older state; the feed delivers the write of a faster replica."""
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
        value = encode_record(record, None if over is None else over.value)
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
        """Return the record, or None when it is unreadable and the state in memory stays in force."""
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
            case KeyRequirement():
                self.keys.take_requirement(record if is_there else None)

    def _forget_everything(self) -> None:
        for name, record in self._known.items():
            self._show(name, record, is_there=False)
        self._known.clear()
        self._owed.clear()
        self._is_copied = False

    async def _save(self) -> None:
        if not self._is_copied:
            self._is_copied = True
            saved = saved_of(self._known.values(), self._origin)
            await asyncio.to_thread(self._copy.write, saved)


def _mark_in(value: bytes) -> str:
    return value.decode(errors="replace")

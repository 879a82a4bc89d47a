"""Directory: the store's space of keys, admins and tokens; reads are from memory, writes wait for their own echo."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gateway.access.accounts import ADMIN_PREFIX, TOKEN_PREFIX, Accounts, Admin, Token
from gateway.access.stored_keys import PREFIX, StoredKey, StoredKeys
from gateway.store.base import Store, StoreUnavailable
from gateway.store.follower import FOLLOW_S, Follower

SPACE: Final = "access"


class Directory:
    """One for each process. Writers raise StoreUnavailable, and then nothing was changed as far as anybody knows."""

    def __init__(self, store: Store, wall: Callable[[], float], *, copy: Path) -> None:
        """`copy`: a file that remembers the keys, by their hashes, for a start during which the store is lost."""
        self._store = store
        self._copy = copy
        self._is_copied = True
        self.keys = StoredKeys(wall)
        self.accounts = Accounts(wall)
        self._follower = Follower(store, SPACE, self._take)

    @property
    def is_known(self) -> bool:
        """Whether the store was read at least once: before that nobody can say that there are no admins."""
        return self._follower.has_read

    async def load(self) -> None:
        """Read everything; the keys of the last time, and StoreUnavailable, when that cannot be."""
        try:
            await self._follower.catch_up()
        except StoreUnavailable:
            for key in await asyncio.to_thread(_read_copy, self._copy):
                self.keys.take(key.name, msgspec.json.encode(key))
            raise
        await self._save()

    async def run(self) -> None:
        """Follow the store for ever; ends by cancellation."""
        while True:
            with suppress(StoreUnavailable):  # the store's observer was told; what was missed is read later
                await self._follower.catch_up()
            await self._save()
            await asyncio.sleep(FOLLOW_S)

    async def put_key(self, key: StoredKey, *, is_new: bool) -> bool:
        """Whether it was written; False when a new one has the name of another."""
        return await self._put(key.name, msgspec.json.encode(key), is_new=is_new)

    async def put_admin(self, admin: Admin, *, is_new: bool) -> bool:
        """As `put_key`."""
        return await self._put(ADMIN_PREFIX + admin.name, msgspec.json.encode(admin), is_new=is_new)

    async def put_token(self, token: Token) -> bool:
        """As `put_key`."""
        return await self._put(TOKEN_PREFIX + token.sha256, msgspec.json.encode(token), is_new=True)

    async def delete_admin(self, name: str) -> bool:
        """Whether there was one."""
        return await self._delete(ADMIN_PREFIX + name)

    async def delete_token(self, token: Token) -> bool:
        """Whether there was one."""
        return await self._delete(TOKEN_PREFIX + token.sha256)

    async def _put(self, name: str, value: bytes, *, is_new: bool) -> bool:
        written = await self._store.put(SPACE, name, value, expect=0 if is_new else None)
        await self._follower.catch_up()
        return written is not None

    async def _delete(self, name: str) -> bool:
        was_there = await self._store.delete(SPACE, name)
        await self._follower.catch_up()
        return was_there

    async def _take(self, key: str, value: bytes | None) -> None:
        if key.startswith(PREFIX):
            self.keys.take(key, value)
            self._is_copied = False
        else:
            self.accounts.take(key, value)

    async def _save(self) -> None:
        if not self._is_copied:
            self._is_copied = True
            await asyncio.to_thread(_write_copy, self._copy, self.keys.all())


def _write_copy(path: Path, keys: list[StoredKey]) -> None:
    """Best effort: the store is what counts."""
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(msgspec.json.encode(keys))
        os.replace(aside, path)


def _read_copy(path: Path) -> list[StoredKey]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[StoredKey])
    except (OSError, msgspec.DecodeError):
        return []

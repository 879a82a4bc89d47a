"""ChangeFollower: hands on every change of one space of the store within a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from gateway.store.base import Store, StoreChange, StoreUnavailable

FOLLOW_S: Final = 0.2
"""Time between two reads of the feed."""
_PAGE: Final = 500

Take = Callable[[str, bytes | None], Awaitable[None]]
"""Callback with a key and its value, None when the key is gone."""


class ChangeFollower:
    """Calls `take` for every key once, then for each key that changes. A lost store is read again later."""

    def __init__(
        self,
        store: Store,
        space: str,
        take: Take,
        *,
        wants: Callable[[str], bool] = lambda key: True,
        follow_s: float = FOLLOW_S,
    ) -> None:
        """Follow a space; keys for which `wants` returns False are not read."""
        self._store = store
        self._space = space
        self._take = take
        self._wants = wants
        self._follow_s = follow_s
        self._cursor: int | None = None
        self._anchor: str | None = None
        """The key of the change at the cursor: another key there means another store, however long its feed is."""
        self._known: set[str] = set()
        self._turn = asyncio.Lock()
        self.num_gaps = 0
        """Number of times that changes may have been missed: the store began anew, or was away for too long."""

    @property
    def has_read(self) -> bool:
        """Return whether the whole space was read at least once."""
        return self._cursor is not None

    async def catch_up(self) -> None:
        """Hand on all changes up to now. Raises StoreUnavailable."""
        async with self._turn:
            if self._cursor is None:
                await self._begin()
                return
            while True:
                found = await self._look(self._cursor)
                if found is None:  # away for too long, or the store began anew
                    self.num_gaps += 1
                    await self._begin()
                    continue
                for change in found:
                    await self._hand_on(change.key)
                if not found:
                    return
                self._cursor, self._anchor = found[-1].version, found[-1].key

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            with suppress(StoreUnavailable):  # the store's observer has the error; missed changes are read later
                await self.catch_up()
            await asyncio.sleep(self._follow_s)

    async def _begin(self) -> None:
        """Read the whole space, and go on from here."""
        cursor = (await self._store.changes(self._space)).cursor
        last = (await self._store.changes(self._space, after=cursor - 1, limit=1)).changes if cursor else ()
        await self._read_everything()
        self._cursor = cursor
        self._anchor = last[0].key if last and last[0].version == cursor else None

    async def _look(self, cursor: int) -> list[StoreChange] | None:
        """Return the changes behind the cursor, None when some may be missing."""
        if self._anchor is None:
            found = await self._store.changes(self._space, after=cursor)
            return None if found.is_gap else list(found.changes)
        found = await self._store.changes(self._space, after=cursor - 1)
        if found.is_gap or all(change.key != self._anchor for change in found.changes):
            return None
        return [change for change in found.changes if change.version > cursor]

    async def _read_everything(self) -> None:
        gone, after = set(self._known), ""
        while True:
            keys = await self._store.keys(self._space, after=after, limit=_PAGE)
            for key in keys:
                gone.discard(key)
                await self._hand_on(key)
            if len(keys) < _PAGE:
                break
            after = keys[-1]
        for key in gone:
            await self._hand_on(key)

    async def _hand_on(self, key: str) -> None:
        if not self._wants(key):
            return
        entry = await self._store.get(self._space, key)
        if entry is None:
            self._known.discard(key)
        else:
            self._known.add(key)
        await self._take(key, None if entry is None else entry.value)

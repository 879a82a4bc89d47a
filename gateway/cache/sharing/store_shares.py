"""StoreShares: the memory of cache entries in the store, in bounded bytes, and which of them go for a new one.

Every process follows the store's feed, so each has the list of all entries. A write that would not fit into
`max_bytes`, or into the server's free room, first removes other entries. Those are of tenants above their even share,
or of its own tenant. When none of them is worth less than the new entry, that is not written: the server never has to
refuse.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.eviction import Eviction, Ranked
from gateway.store.base import Room

OVERHEAD_BYTES: Final = 1200
"""Memory of one entry in Redis beyond its value: its key, and its members in index, expiries and feed."""
LOOK_S: Final = 1.0
"""Lifetime of the server's figure of its free memory."""
_SURE_PARTS: Final = 8
"""The divisor of the server's limit that is divided among tenants, whatever else fills it."""
_FADING: Final = 0.99
"""Factor per second of the decay of the most that fitted."""
_SLACK: Final = 4
"""Ends of entries that are gone, per entry, before the heap is rebuilt."""


def stored_bytes(num_bytes: int) -> int:
    """Return the memory of a value in the store, which allocates in steps of up to a quarter."""
    return num_bytes + num_bytes // 4 + OVERHEAD_BYTES


LookAtRoom = Callable[[], Awaitable[Room | None]]
"""Source of the server's free room, None where it has no limit. Raises StoreUnavailable."""


class StoreShares:
    """One process's view of the store's memory. Methods that are not coroutines never wait."""

    def __init__(
        self, max_bytes: int, *, room: LookAtRoom, num_hits: Callable[[bytes], int], wall: Callable[[], float]
    ) -> None:
        """Start without entries; `num_hits` returns how often this process served an entry."""
        self._max_bytes = max_bytes
        self._look = room
        self._num_hits = num_hits
        self._wall = wall
        self._eviction = Eviction(max_bytes)
        self._held: dict[bytes, Ranked] = {}
        self._ends: list[tuple[float, bytes]] = []
        self._ends_at: dict[bytes, float] = {}
        self._free: int | None = None
        self._checked_at = -LOOK_S
        self._most_room = 0
        self._under_way = 0
        """Bytes that were admitted and are not written yet."""

    @property
    def is_bounded(self) -> bool:
        """Return whether the server has a memory limit, or may have one."""
        return self._free is not None or self._checked_at < 0

    @property
    def num_bytes(self) -> int:
        """Memory of all entries in the store, as far as this process has seen them."""
        return self._eviction.num_bytes

    def used_by(self, tenant: str) -> int:
        """Return the memory of one tenant's entries in the store."""
        return self._eviction.used_by(tenant)

    def note(self, entry: CacheEntry, num_bytes: int, ends_at: float) -> None:
        """Count an entry that the store holds, in a value of so many bytes, until `ends_at`."""
        self.forget(entry.exact)
        ranked = Ranked(
            entry.exact,
            tenant=entry.tenant,
            num_bytes=stored_bytes(num_bytes),
            cost_tokens=max(entry.cost_tokens, 0),
        )
        self._held[entry.exact] = ranked
        self._eviction.add(ranked)
        self._ends_at[entry.exact] = ends_at
        heapq.heappush(self._ends, (ends_at, entry.exact))

    def forget(self, exact: bytes) -> None:
        """Stop counting an entry."""
        ranked = self._held.pop(exact, None)
        if ranked is not None:
            self._eviction.remove(ranked)
            del self._ends_at[exact]

    async def let_in(self, entry: CacheEntry, num_bytes: int, ends_at: float) -> tuple[bool, list[bytes]]:
        """Return whether to write this entry, and which entries to remove from the store first, in either case.

        Call `written` once an admitted entry is written, or could not be. Raises StoreUnavailable.
        """
        need = stored_bytes(num_bytes)
        free = await self._free_for(need)
        self._expire()
        self.note(entry, num_bytes, ends_at)
        missing = self._eviction.num_bytes - self._max_bytes
        if free is not None:  # while it is written, the connection's buffer has it as well
            missing = max(missing, 2 * need - free)
        gone, freed = [], 0
        while missing > freed and entry.exact in self._held:
            victim = self._victim(entry.tenant)
            freed += victim.num_bytes
            gone.append(victim.exact)
        is_let_in = entry.exact in self._held
        if is_let_in:
            self._under_way += need
        else:
            gone.remove(entry.exact)
        if self._free is not None:
            self._free += freed - need
        return is_let_in, gone

    def written(self, num_bytes: int) -> None:
        """Note that an admitted entry is written, or could not be."""
        self._under_way -= stored_bytes(num_bytes)

    def _victim(self, tenant: str) -> Ranked:
        """Remove and return the entry to evict first. Hits here since it was written count."""
        while True:
            ranked = self._eviction.victim_for(tenant)
            assert ranked is not None, "the entry that needs the room is there"
            num_hits = self._num_hits(ranked.exact)
            if num_hits <= ranked.num_hits:
                del self._held[ranked.exact], self._ends_at[ranked.exact]
                self._eviction.remove(ranked, is_victim=True)
                return ranked
            self._eviction.hit(ranked, num_hits - ranked.num_hits)

    def _expire(self) -> None:
        """Stop counting entries that have expired in the store."""
        now = self._wall()
        while self._ends and (self._ends[0][0] <= now or len(self._ends) > _SLACK * len(self._held) + 64):
            if self._ends[0][0] <= now:
                _, exact = heapq.heappop(self._ends)
                if self._ends_at.get(exact, now) <= now:
                    self.forget(exact)
            else:
                self._ends = [(ends_at, exact) for exact, ends_at in self._ends_at.items()]
                heapq.heapify(self._ends)

    def _note_room(self, found: Room | None) -> None:
        """Divide the most that fitted lately: the buffers of connections come and go."""
        if found is not None:
            room = max(self._eviction.num_bytes + max(found.free_bytes // 2, 0), found.limit_bytes // _SURE_PARTS)
            self._most_room = self._eviction.max_bytes = min(self._max_bytes, max(room, self._most_room))

    async def _free_for(self, need: int) -> int | None:
        """Return the room for this process's next writes: half of the server's, since others write too."""
        now = self._wall()
        if abs(now - self._checked_at) >= LOOK_S or (self._free is not None and self._free < 2 * need):
            found = await self._look()
            self._free = None if found is None else found.free_bytes // 2 - self._under_way
            if abs(now - self._checked_at) >= LOOK_S:
                self._most_room = int(_FADING * self._most_room)
            self._checked_at = now
            self._note_room(found)
        return self._free

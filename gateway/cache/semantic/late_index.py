"""LateIndex: cached responses that found the encoder busy or not ready, and are indexed once it has time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal, Protocol

from gateway.cache.exact.entry import CacheEntry
from gateway.cache.semantic.semantic_tier import Embeds, SemanticTier
from gateway.util.fair_bounded_dict import FairRecent

MAX_WAITING: Final = 100_000
"""Entries that wait; beyond it, the tenant with the most loses its oldest."""
_IDLE_POLL_S: Final = 0.02

Share = Callable[[CacheEntry], None]
LateEnd = Literal["indexed", "no_vector", "gone", "dropped"]
"""End of one entry's wait; a closed set of metric labels."""


class QueuedEmbeds(Embeds, Protocol):
    """An encoder behind a queue."""

    @property
    def num_waiting(self) -> int:
        """Return the number of texts that no batch has taken yet."""
        ...


class LateIndex:
    """Queue behind the encoder's own: it sends one text at a time, and only while no lookup waits."""

    __slots__ = ("_count", "_embedder", "_has_work", "_tier", "_waiting")

    def __init__(self, tier: SemanticTier, embedder: QueuedEmbeds, *, count: Callable[[LateEnd], None]) -> None:
        """Create an empty queue; `count` gets the end of each entry's wait."""
        self._tier = tier
        self._embedder = embedder
        self._count = count
        self._waiting: FairRecent[bytes, Share] = FairRecent(MAX_WAITING)
        self._has_work = asyncio.Event()

    @property
    def num_waiting(self) -> int:
        """Number of entries that wait."""
        return len(self._waiting)

    def add(self, entry: CacheEntry, share: Share) -> None:
        """Have an entry indexed later, and shared with its vector."""
        for _ in self._waiting.put(entry.exact, share, entry.tenant):
            self._count("dropped")
        self._has_work.set()

    async def run(self) -> None:
        """Index what waits, oldest first, until cancelled."""
        while True:
            self._has_work.clear()
            if not self._waiting:
                await self._has_work.wait()
            while not self._has_time:
                await asyncio.sleep(_IDLE_POLL_S)
            for exact, share in self._waiting.oldest_of_each():
                self._waiting.pop(exact)
                self._count(await self._index(exact, share))

    @property
    def _has_time(self) -> bool:
        return self._tier.is_open and self._embedder.is_ready and self._embedder.num_waiting == 0

    async def _index(self, exact: bytes, share: Share) -> LateEnd:
        entry = self._tier.entry_of(exact)
        if entry is None or entry.text is None:
            return "gone"
        vector = await self._embedder.embed(entry.text)
        if vector is None:
            return "no_vector"
        self._tier.place(entry, vector)
        share(self._tier.packed(entry, vector))
        return "indexed"

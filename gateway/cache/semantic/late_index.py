"""LateIndex: cached responses that found the encoder busy or not ready, and are indexed once it has time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal, Protocol

from gateway.cache.audit.lookup_times import LookupTimes
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.semantic.canonical_question import canonical_question
from gateway.cache.semantic.semantic_tier import Embeds, SemanticTier, Vector
from gateway.timeline import Clock
from gateway.util.fair_bounded_dict import FairRecent

MAX_WAITING: Final = 100_000
"""Entries that wait; beyond it, the tenant with the most loses its oldest."""

MAX_PLACING: Final = 32
"""Entries with a placement of their own that wait; those of others hold no request."""

Share = Callable[[CacheEntry], None]
Place = Callable[[CacheEntry, Vector, Share], None]
"""Placement of an entry once it has its vector: it may look for a similar one first."""
LateEnd = Literal["indexed", "no_vector", "gone", "dropped"]
"""End of one entry's wait; a closed set of metric labels."""


class QueuedEmbeds(Embeds, Protocol):
    """An encoder behind a queue."""

    @property
    def num_waiting(self) -> int:
        """Return the number of texts that no batch has taken yet."""
        ...

    async def until_idle(self) -> None:
        """Return once the encoder is loaded and no text waits for it."""
        ...


class LateIndex:
    """Queue behind the encoder's own: it sends one text at a time, and only while no lookup waits."""

    __slots__ = ("_clock", "_count", "_embedder", "_has_work", "_is_open", "_placing", "_tier", "_times", "_waiting")

    def __init__(
        self,
        tier: SemanticTier,
        embedder: QueuedEmbeds,
        *,
        times: LookupTimes,
        count: Callable[[LateEnd], None],
        clock: Clock,
    ) -> None:
        """Create an empty queue.

        Args:
            tier: The semantic tier.
            embedder: The encoder behind its queue.
            times: Given what the encodings take, which shows what lookups would.
            count: Given the end of each entry's wait.
            clock: Seconds on a monotonic clock.
        """
        self._tier = tier
        self._embedder = embedder
        self._count = count
        self._waiting: FairRecent[bytes, Share] = FairRecent(MAX_WAITING)
        self._placing: dict[bytes, Place] = {}
        self._times = times
        self._clock = clock
        self._has_work = asyncio.Event()
        self._is_open = asyncio.Event()

    @property
    def num_waiting(self) -> int:
        """Number of entries that wait."""
        return len(self._waiting)

    def add(self, entry: CacheEntry, share: Share, place: Place | None = None) -> None:
        """Have an entry indexed later and shared with its vector, by `place` unless too many others wait for theirs."""
        for dropped, _ in self._waiting.put(entry.exact, share, entry.tenant):
            self._placing.pop(dropped, None)
            self._count("dropped")
        if place is not None and len(self._placing) < MAX_PLACING:
            self._placing[entry.exact] = place
        self._has_work.set()

    def begin(self) -> None:
        """Start to index, because the tier has an index now."""
        self._is_open.set()

    async def run(self) -> None:
        """Index what waits once `begin` was called, oldest first, until cancelled."""
        await self._is_open.wait()
        while True:
            self._has_work.clear()
            if not self._waiting:
                await self._has_work.wait()
            await self._embedder.until_idle()
            for exact, share in self._waiting.oldest_of_each():
                self._waiting.pop(exact)
                self._count(await self._index(exact, share, self._placing.pop(exact, None)))

    async def _index(self, exact: bytes, share: Share, place: Place | None) -> LateEnd:
        entry = self._tier.entry_of(exact)
        if entry is None or entry.text is None:
            return "gone"
        is_alone, began_at = self._embedder.num_waiting == 0, self._clock()
        vector = await self._embedder.embed(canonical_question(entry.text))
        if vector is None:
            return "no_vector"
        if is_alone:
            now = self._clock()
            self._times.note_lookup(now - began_at, None, 0, now)
        if place is not None:
            place(entry, vector, share)
        else:
            self._tier.place(entry, vector)
            share(self._tier.packed(entry, vector))
        return "indexed"

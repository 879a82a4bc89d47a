"""SemanticLookup: one request's lookup in the semantic tier, which may run beside the upstream call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from gateway.cache.audit.route_stats import RouteStats, TenantRoute
from gateway.cache.exact.cache_lookup import CacheIdentity
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.fingerprint import Fingerprint
from gateway.cache.exact.needs import NO_NEEDS, Needs
from gateway.cache.semantic.semantic_tier import SemanticResult, SemanticTier, Vector
from gateway.telemetry.records.cache_reasons import SimilarReason
from gateway.timeline import Clock

if TYPE_CHECKING:
    from gateway.cache.index.vector_index import Neighbour


class LookupSubject(msgspec.Struct, frozen=True):
    """The subject of a lookup: the request's key, its tenant and route, and its needs."""

    key: Fingerprint
    wanted: CacheIdentity
    whose: TenantRoute
    stats: RouteStats
    needs: Needs = NO_NEEDS


class SemanticLookup:
    """A lookup under way. Once it is `done`, `finding` is set, and `on_hit` was called if it is a hit."""

    __slots__ = (
        *(
            "_began_at",
            "_clock",
            "_has_place",
            "_is_timed",
            "_needs",
            "_tier",
            "_workers",
            "done",
            "embed_s",
            "ended_at",
            "finding",
        ),
        *("is_lookup", "key", "on_end", "on_hit", "on_other", "on_unplaced", "search_s", "stats"),
        *("vector", "wanted", "whose"),
    )

    def __init__(
        self,
        tier: SemanticTier,
        vector: asyncio.Future[Vector | None],
        *,
        subject: LookupSubject,
        clock: Clock,
        workers: Executor,
        is_lookup: bool = True,
        is_timed: bool = True,
    ) -> None:
        """Begin the lookup.

        Args:
            tier: The semantic tier.
            vector: The embedding of the last user text, once it is there.
            subject: The request's fingerprint, identity and needs, and the statistics that count it.
            clock: Seconds on a monotonic clock.
            workers: Threads for searches that take too long for the event loop.
            is_lookup: False where nothing is looked up, but the response is indexed.
            is_timed: False where the vector was there before, so that the time shows nothing.
        """
        self._tier = tier
        self.vector = vector
        self.key = subject.key
        self.wanted = subject.wanted
        self.whose = subject.whose
        self.stats = subject.stats
        self._clock = clock
        self._workers = workers
        self.is_lookup = is_lookup
        self._is_timed = is_timed
        self._needs = subject.needs
        self._began_at = clock()
        self._has_place = False
        self.embed_s = 0.0
        self.search_s = 0.0
        self.ended_at: float | None = None
        """Time of the end; None before."""
        self.finding: SemanticResult | None = None
        self.on_end: Callable[[float, float | None], None] | None = None
        """Callback for the seconds that the lookup took, and the part of them after the encoding, if there was one."""
        self.on_hit: Callable[[], None] | None = None
        self.on_other: Callable[[SemanticLookup, CacheEntry], None] | None = None
        """Callback when a deployment has answered what an entry might have answered: the two can be compared."""
        self.on_unplaced: Callable[[CacheEntry, Callable[[CacheEntry], None]], None] | None = None
        """Callback for a new entry that has no vector yet, and how to share it once it has one."""
        self.done: asyncio.Future[None] = vector.get_loop().create_future()
        """Future that is set when the lookup has ended."""
        vector.add_done_callback(self._look)

    def reason(self, responded_at: float | None) -> SimilarReason:
        """Return why the lookup had no effect; one that ended after the response had begun is late."""
        if self.finding is None or self.finding.is_hit or self.is_late(responded_at):
            return "late"
        return self.finding.reason

    def is_late(self, responded_at: float | None) -> bool:
        """Return whether the lookup has not ended, or ended after the response had begun; None: it has not begun."""
        return self.ended_at is None or (responded_at is not None and self.ended_at > responded_at)

    def ended_before(self, instant: float) -> bool:
        """Return whether the lookup had ended at a time of the clock."""
        return self.ended_at is not None and self.ended_at < instant

    def close(self) -> None:
        """End the lookup with its request, unless the vector is needed for the response."""
        self.on_hit = None
        if not self._has_place:
            self.on_other = self.on_unplaced = None
            if self.ended_at is None and self.on_end is not None:  # it would have taken longer still
                self.on_end(self._clock() - self._began_at, None)
            self.vector.cancel()
            self.done.cancel()

    def expect_answer(self) -> None:
        """Let `close` leave the vector alone: the response is stored a little later."""
        self._has_place = True

    def stored(self, entry: CacheEntry, share: Callable[[CacheEntry], None]) -> None:
        """Let similar questions find a new entry, here and elsewhere, once there is a vector."""
        self._has_place = True
        if self.done.done():
            self._place(entry, share)
        else:
            self.done.add_done_callback(lambda _: self._place(entry, share))

    def _look(self, encoded: asyncio.Future[Vector | None]) -> None:
        if encoded.cancelled():
            self.done.cancel()
            return
        self.embed_s = self._clock() - self._began_at
        vector = encoded.result()
        if not self.is_lookup:
            self._end(None)
        elif vector is None:
            self._end(_NO_VECTOR)
        elif self._tier.is_quick(self.key.context):
            self._decide(partial(self._tier.nearest, self.key.context, vector))
        else:
            search = self.done.get_loop().run_in_executor(self._workers, self._tier.nearest, self.key.context, vector)
            search.add_done_callback(lambda found: self._decide(found.result))

    def _decide(self, near: Callable[[], Sequence[Neighbour]]) -> None:
        if self.done.done():
            return
        try:
            finding = self._tier.find(near(), self.key, self.wanted, self.stats, self._needs)
        except Exception as error:  # whatever a text does to the comparison, its request goes on
            self._tier.on_failure(error)
            finding = _FAILED
        self._end(finding)

    def _end(self, finding: SemanticResult | None) -> None:
        self.finding = finding
        self.ended_at = self._clock()
        took_s = self.ended_at - self._began_at
        self.search_s = took_s - self.embed_s
        if finding is not None:
            self.stats.order.note(is_hit=finding.is_hit, took_s=took_s if self._is_timed else None)
        if finding is not _NO_VECTOR and self.on_end is not None:
            self.on_end(took_s, None if finding is None else self.search_s)
        if not self.done.done():
            self.done.set_result(None)
        if finding is not None and finding.is_hit and self.on_hit is not None:
            self.on_hit()

    def _place(self, entry: CacheEntry, share: Callable[[CacheEntry], None]) -> None:
        on_other, self.on_other = self.on_other, None  # it refers to the request
        vector = None if not self.vector.done() or self.vector.cancelled() else self.vector.result()
        if vector is None:
            share(entry)
            if self.on_unplaced is not None:
                self.on_unplaced(entry, share)
            return
        self._tier.place(entry, vector)
        share(self._tier.packed(entry, vector))
        finding = self.finding
        if finding is not None and finding.entry is not None and on_other is not None:
            on_other(self, entry)


_NO_VECTOR = SemanticResult("no_vector")
_FAILED = SemanticResult("failed")

"""The semantic tier: an answer that was given to a question that means the same, in the same context.

The index says what lies near, and only among questions whose tenant, models, instructions, history, tools and
parameters are equal: the context's digest is part of the query. The judge says how likely the kept answer is to be
right for this question, from how the two texts differ. It is served when that is enough to keep the route's promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.cache.audit.route_stats import RouteStats
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.exact_cache import is_current
from gateway.cache.exact.exact_tier import ExactTier
from gateway.cache.exact.fingerprint import Fingerprint
from gateway.cache.exact.needs import NO_NEEDS, Needs
from gateway.cache.exact.wanted import CacheIdentity
from gateway.cache.similarity.decision import EntryAudits
from gateway.telemetry.records.cache_reasons import SimilarReason

Vector = NDArray[np.float32]

NUM_NEIGHBOURS: Final = 4
"""Asked of the index: some of them may have become unfit to be served."""


class Embeds(Protocol):
    """Turns texts into vectors, off the event loop."""

    @property
    def is_ready(self) -> bool:
        """Whether it does."""
        ...

    async def embed(self, text: str) -> Vector | None:
        """None when there is no time for it, or the text is too long to have one."""
        ...


class StoredNeighbour(Protocol):
    """What the index says of one kept question."""

    @property
    def exact(self) -> bytes:
        """Its fingerprint."""
        ...

    @property
    def similarity(self) -> float:
        """Cosine."""
        ...


class SemanticIndex(Protocol):
    """Kept questions by context and meaning."""

    def add(self, context: bytes, exact: bytes, vector: Vector) -> None:
        """Take it in; it must not be there."""
        ...

    def remove(self, exact: bytes) -> None:
        """Throw it out, if it is there."""
        ...

    def is_quick(self, context: bytes) -> bool:
        """Whether `nearest` may be called on the event loop."""
        ...

    def nearest(self, context: bytes, vector: Vector, count: int = 2) -> Sequence[StoredNeighbour]:
        """Best first, of this context only."""
        ...

    def __contains__(self, exact: bytes) -> bool: ...

    def __len__(self) -> int: ...


class SemanticResult(msgspec.Struct, frozen=True, gc=False):
    """What a lookup came to."""

    reason: SimilarReason
    entry: CacheEntry | None = None
    """What is nearest and could be given, whether it is or not; None: there is nothing."""
    similarity: float = 0.0
    runner_up: float | None = None
    chance: float = 0.0
    """Of its answer being right."""
    shipped_chance: float = 0.0
    """The same before anything was learnt from this route's audits."""
    floor: float = 0.0
    """What the chance had to be."""

    @property
    def is_hit(self) -> bool:
        """Whether it is to be served."""
        return self.reason == "similar"

    @property
    def careful_chance(self) -> float:
        """The lower of both: what was learnt may be of questions that are no longer asked."""
        return min(self.chance, self.shipped_chance)


class _Fit(NamedTuple):
    entry: CacheEntry
    similarity: float


class SemanticTier:
    """Belongs to one event loop; nothing here waits or fails."""

    def __init__(
        self,
        tier: ExactTier,
        *,
        track_of: Callable[[bytes], EntryAudits | None],
        is_barred: Callable[[bytes], bool],
        wall: Callable[[], float],
    ) -> None:
        """`tier` holds the answers; `is_barred` tells which were found wrong for similar questions."""
        self._tier = tier
        self._index: SemanticIndex | None = None
        self._encoder_id = ""
        self.drops_orphans = False
        """Whether what the index has and nobody keeps is gone for good, and not merely to be read yet."""
        self._early: dict[bytes, CacheEntry] = {}
        """Entries of other processes that came before the encoder was there."""
        self._track_of = track_of
        self._is_barred = is_barred
        self._wall = wall

    @property
    def num_entries(self) -> int:
        """Questions that similar ones may be compared with."""
        return 0 if self._index is None else len(self._index)

    def open(self, index: SemanticIndex, encoder_id: str) -> None:
        """The encoder is there: from now on `index` holds what it makes."""
        self._index, self._encoder_id = index, encoder_id
        early, self._early = self._early, {}
        for entry in early.values():
            self.taken(entry)

    def is_quick(self, context: bytes) -> bool:
        """Whether `nearest` may be called on the event loop; else it belongs on a thread."""
        return self._index is None or self._index.is_quick(context)

    def nearest(self, context: bytes, vector: Vector) -> Sequence[StoredNeighbour]:
        """What lies near in this context, best first."""
        return () if self._index is None else self._index.nearest(context, vector, NUM_NEIGHBOURS)

    def find(
        self,
        near: Sequence[StoredNeighbour],
        key: Fingerprint,
        wanted: CacheIdentity,
        book: RouteStats,
        needs: Needs = NO_NEEDS,
    ) -> SemanticResult:
        """Of what lies near, the first that may answer this question, and whether it does."""
        fit = [found for found in self._fit(near, key, wanted) if needs.are_met_by(found.entry.answer)]
        if not fit:
            return SemanticResult("alone")
        entry, similarity = fit[0]
        runner_up = fit[1].similarity if len(fit) > 1 else None
        asked, kept = key.text or "", entry.text or ""
        bound = wanted.rule.max_error_ratio
        track = self._track_of(entry.exact)
        chance = book.judge.chance_right(asked, kept, similarity=similarity, runner_up=runner_up, track=track)
        shipped_chance = chance
        if track is not None or book.is_recalibrated:
            shipped_chance = book.shipped.chance_right(
                asked, kept, similarity=similarity, runner_up=runner_up, track=None
            )
        floor = book.floor_for(key.exact, entry.exact, bound)
        reason: SimilarReason = "similar" if chance >= floor else "doubtful"
        if reason == "doubtful" and chance >= book.floor(bound, 0):
            reason = "closed"
        book.similarities.note("served" if reason == "similar" else "refused", similarity)
        return SemanticResult(reason, entry, similarity, runner_up, chance, shipped_chance, floor)

    def _fit(self, found: Sequence[StoredNeighbour], key: Fingerprint, wanted: CacheIdentity) -> list[_Fit]:
        now = self._wall()
        fit: list[_Fit] = []
        for near in found:
            entry = self._tier.by_exact(near.exact)
            if entry is None:
                self._drop_orphan(near.exact)
            elif (
                entry.context == key.context
                and entry.text is not None
                and is_current(entry, wanted.rule.ttl_s, now)
                and entry.is_fresh(now, wanted.control.max_age_s)
                and not self._tier.is_quarantined(entry.id)
                and not self._is_barred(entry.exact)
            ):
                fit.append(_Fit(entry, near.similarity))
        return fit

    def _drop_orphan(self, exact: bytes) -> None:
        if self.drops_orphans and self._index is not None:
            self._index.remove(exact)

    def use(self, entry: CacheEntry) -> None:
        """It is served: it is worth keeping."""
        self._tier.find(entry.exact, self._wall())

    # What the exact tier keeps and loses, the index keeps and loses.

    def place(self, entry: CacheEntry, vector: Vector) -> None:
        """An entry is kept, and this is what was asked; nothing when it is gone again."""
        if self._index is not None and entry.exact in self._tier and entry.context != entry.exact:
            self._index.remove(entry.exact)
            self._index.add(entry.context, entry.exact, vector)

    def taken(self, entry: CacheEntry) -> None:
        """An entry came from another process, with its vector if it had one from the same encoder."""
        if not entry.vector:
            return
        if self._index is None:
            self._early[entry.exact] = entry
        elif entry.encoder == self._encoder_id and entry.exact not in self._index:
            vector = np.frombuffer(entry.vector, dtype=np.float16).astype(np.float32)
            self.place(entry, vector / np.linalg.norm(vector))

    def removed(self, entry: CacheEntry) -> None:
        """It is gone."""
        self._early.pop(entry.exact, None)
        if self._index is not None:
            self._index.remove(entry.exact)

    def packed(self, entry: CacheEntry, vector: Vector) -> CacheEntry:
        """The entry as it travels: followers would take milliseconds to compute what is 768 bytes to send."""
        vector_bytes = vector.astype(np.float16).tobytes()
        return msgspec.structs.replace(entry, vector=vector_bytes, encoder=self._encoder_id)

"""SemanticTier: cached responses for similar questions in the same context.

The index finds what lies near, and only among questions whose tenant, models, instructions, history, tools and
parameters are equal: the context's digest is part of the query. The match model gives the probability that the cached
response is right for this question, from how the two texts differ. It is served when that keeps the route's error
budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.cache.audit.route_stats import RouteStats
from gateway.cache.exact.cache_lookup import CacheIdentity
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.exact_cache import is_current
from gateway.cache.exact.exact_tier import ExactTier
from gateway.cache.exact.fingerprint import Fingerprint
from gateway.cache.exact.needs import NO_NEEDS, Needs
from gateway.cache.similarity.decision import EntryAudits
from gateway.telemetry.records.cache_reasons import SimilarReason

if TYPE_CHECKING:  # FAISS costs time and memory: it is imported where it is used
    from gateway.cache.index.vector_index import Neighbour, VectorIndex

Vector = NDArray[np.float32]

NUM_NEIGHBOURS: Final = 4
"""Neighbours taken from the index: some of them may not be served any more."""


class Embeds(Protocol):
    """Computes embeddings off the event loop."""

    @property
    def is_ready(self) -> bool:
        """Return whether texts are encoded."""
        ...

    async def embed(self, text: str) -> Vector | None:
        """Return the text's vector; None when there is no time for it, or the text is too long to have one."""
        ...


class SemanticResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a lookup."""

    reason: SimilarReason
    entry: CacheEntry | None = None
    """The nearest entry that may be served, whether it is or not."""
    similarity: float = 0.0
    runner_up: float | None = None
    match_probability: float = 0.0
    """Match probability."""
    shipped_probability: float = 0.0
    """Match probability by the shipped model, before anything was learnt from this route's audits."""
    threshold: float = 0.0
    """Threshold of the match probability."""

    @property
    def is_hit(self) -> bool:
        """Return whether the entry is to be served."""
        return self.reason == "similar"


class _Fit(NamedTuple):
    entry: CacheEntry
    similarity: float


class SemanticTier:
    """The index over the exact tier's entries. Belongs to one event loop; nothing here waits."""

    def __init__(
        self,
        tier: ExactTier,
        *,
        track_of: Callable[[bytes], EntryAudits | None],
        is_barred: Callable[[bytes], bool],
        on_failure: Callable[[BaseException], None],
        wall: Callable[[], float],
    ) -> None:
        """Set up the tier.

        Args:
            tier: The exact tier, which has the entries.
            track_of: Returns the audits of an entry, or None.
            is_barred: Returns whether an entry was wrong for similar questions.
            on_failure: Given each error of a guard, a search or a comparison, after which the tier is skipped.
            wall: Seconds since the epoch.
        """
        self._tier = tier
        self._index: VectorIndex | None = None
        self._encoder_id = ""
        self._scale: Callable[[float], float] = float
        self.drops_orphans = False
        """True if ids in the index without an entry are gone for good; False while entries are still read."""
        self._early: dict[bytes, CacheEntry] = {}
        """Entries of other processes that came before the encoder was ready."""
        self._track_of = track_of
        self._is_barred = is_barred
        self.on_failure = on_failure
        self._wall = wall

    @property
    def num_entries(self) -> int:
        """Number of indexed questions."""
        return 0 if self._index is None else len(self._index)

    @property
    def is_open(self) -> bool:
        """Return whether there is an index."""
        return self._index is not None

    def entry_of(self, exact: bytes) -> CacheEntry | None:
        """Return the entry with this fingerprint, if the exact tier still has it."""
        return self._tier.by_exact(exact)

    def open(self, index: VectorIndex, encoder_id: str, scale: Callable[[float], float] = float) -> None:
        """Use an index of the encoder that is ready now; `scale` maps its cosines to the match model's scale."""
        self._index, self._encoder_id, self._scale = index, encoder_id, scale
        early, self._early = self._early, {}
        for entry in early.values():
            self.taken(entry)

    def is_quick(self, context: bytes) -> bool:
        """Return whether `nearest` may be called on the event loop; else it belongs on a thread."""
        return self._index is None or self._index.is_quick(context)

    def nearest(self, context: bytes, vector: Vector) -> Sequence[Neighbour]:
        """Return the nearest questions of this context, best first."""
        return () if self._index is None else self._index.nearest(context, vector, NUM_NEIGHBOURS)

    def find(
        self,
        near: Sequence[Neighbour],
        key: Fingerprint,
        wanted: CacheIdentity,
        stats: RouteStats,
        needs: Needs = NO_NEEDS,
        *,
        is_counted: bool = True,
    ) -> SemanticResult:
        """Return the nearest entry that may answer this question, and whether it does.

        A lookup that no request makes is not counted among those that the statistics learn from.
        """
        fit = [found for found in self._fit(near, key, wanted) if needs.are_met_by(found.entry.answer)]
        if not fit:
            return SemanticResult("alone")
        entry, similarity = fit[0]
        runner_up = fit[1].similarity if len(fit) > 1 else None
        prompt, cached = key.text or "", entry.text or ""
        bound = wanted.rule.max_error_ratio
        track = self._track_of(entry.exact)
        match_probability = stats.predictor.match_probability(
            prompt, cached, similarity=similarity, runner_up=runner_up, track=track
        )
        shipped_probability = match_probability
        if track is not None or stats.is_recalibrated:
            shipped_probability = stats.shipped.match_probability(
                prompt, cached, similarity=similarity, runner_up=runner_up, track=None
            )
        threshold = stats.threshold_for(key.exact, entry.exact, bound)
        if is_counted:
            stats.note_lookup(key.exact, entry.exact, match_probability, shipped_probability)
        reason: SimilarReason = "similar" if match_probability >= threshold else "doubtful"
        if reason == "doubtful" and match_probability >= stats.threshold(bound, 0):
            reason = "closed"
        if is_counted:
            stats.similarities.note("served" if reason == "similar" else "refused", similarity)
        return SemanticResult(reason, entry, similarity, runner_up, match_probability, shipped_probability, threshold)

    def _fit(self, found: Sequence[Neighbour], key: Fingerprint, wanted: CacheIdentity) -> list[_Fit]:
        now = self._wall()
        fit: list[_Fit] = []
        for near in found:
            entry = self._tier.by_exact(near.exact)
            if entry is None or entry.context != key.context:
                self._drop_orphan(key.context, near.exact)
            elif (
                entry.text is not None
                and is_current(entry, wanted.rule.ttl_s, now)
                and entry.is_fresh(now, wanted.control.max_age_s)
                and not self._tier.is_quarantined(entry.id)
                and not self._is_barred(entry.exact)
            ):
                fit.append(_Fit(entry, self._scale(near.similarity)))
        return fit

    def _drop_orphan(self, context: bytes, exact: bytes) -> None:
        if self.drops_orphans and self._index is not None:
            self._index.remove(context, exact)

    def use(self, entry: CacheEntry) -> None:
        """Count a hit of an entry."""
        self._tier.find(entry.exact, self._wall())

    # The index follows the exact tier.

    def place(self, entry: CacheEntry, vector: Vector) -> None:
        """Index an entry under the vector of its text, unless it is gone again."""
        if self._index is not None and entry.exact in self._tier and entry.context != entry.exact:
            self._index.add(entry.context, entry.exact, vector)

    def taken(self, entry: CacheEntry) -> None:
        """Index an entry of another process, if it has a vector of the same encoder."""
        if not entry.vector:
            return
        if self._index is None:
            self._early[entry.exact] = entry
        elif entry.encoder == self._encoder_id and not self._index.contains(entry.context, entry.exact):
            vector = np.frombuffer(entry.vector, dtype=np.float16).astype(np.float32)
            self.place(entry, vector / np.linalg.norm(vector))

    def removed(self, entry: CacheEntry) -> None:
        """Remove an entry from the index."""
        self._early.pop(entry.exact, None)
        if self._index is not None:
            self._index.remove(entry.context, entry.exact)

    def packed(self, entry: CacheEntry, vector: Vector) -> CacheEntry:
        """Return the entry with its vector, 768 bytes that take other processes milliseconds to compute."""
        vector_bytes = vector.astype(np.float16).tobytes()
        return msgspec.structs.replace(entry, vector=vector_bytes, encoder=self._encoder_id)

"""Partition: the vectors of one context, in segments that are merged as in a log-structured merge tree.

    recent ──256──▶ flat segments ──10,000──▶ small segments with cells ──50,000──▶ middling ──250,000──▶ large

(O'Neil et al., 1996.) A merge writes a new segment beside its sources, which then takes their place: a partition of a
million rows needs memory for one segment more, and neither searches nor changes wait for it.
"""

from __future__ import annotations

from typing import Final

from gateway.cache.index.segment import IndexSegment
from gateway.embedding.encoder import Vector

FLAT_ROWS: Final = 10_000
"""Rows that are compared in full, in a third of a millisecond; more get cells."""
RECENT_ROWS: Final = 256
_MAX_FLAT_SEGMENTS: Final = 8
_FAN_OUT: Final = 5
_TIER_SLACK: Final = 2.5


class Partition:
    """Ids with their vectors. Not thread-safe; its segments may be searched as `IndexSegment` documents."""

    __slots__ = ("flat_rows", "recent", "segments")

    def __init__(self, flat_rows: int = FLAT_ROWS) -> None:
        self.flat_rows = flat_rows
        self.recent: dict[bytes, bytes] = {}
        """The bytes of vectors that are in no segment yet."""
        self.segments: list[IndexSegment] = []

    def __len__(self) -> int:
        return len(self.recent) + sum(segment.num_living for segment in self.segments)

    def __contains__(self, exact: bytes) -> bool:
        return exact in self.recent or any(exact in segment for segment in self.segments)

    @property
    def is_quick(self) -> bool:
        """Return whether a search takes well under a millisecond."""
        return all(segment.is_flat for segment in self.segments) and sum(map(len, self.segments)) <= self.flat_rows

    def add(self, exact: bytes, vector: Vector) -> None:
        """Add an id that is not here."""
        self.recent[exact] = vector.tobytes()
        if len(self.recent) >= RECENT_ROWS:
            self.segments = [*self.segments, IndexSegment.flat(self.recent)]
            self.recent = {}

    def remove(self, exact: bytes) -> bool:
        """Remove the id; return whether it was here."""
        is_recent = self.recent.pop(exact, None) is not None
        return is_recent or any(segment.remove(exact) for segment in self.segments)

    def due(self) -> list[IndexSegment]:
        """Return the segments to merge next: flat ones where they are many, else one that is worn."""
        flat = [segment for segment in self.segments if segment.is_flat]
        if sum(map(len, flat)) > self.flat_rows:
            sources = flat
            for tier in range(2):
                peers = sources + [each for each in self.segments if self._tier(each) == tier]
                if sum(each.num_living for each in peers) < self.flat_rows * _FAN_OUT ** (tier + 1):
                    break
                sources = peers
            return sources
        if len(flat) > _MAX_FLAT_SEGMENTS:
            return flat
        return next(([segment] for segment in self.segments if segment.is_worn), [])

    def replace(self, sources: list[IndexSegment], segment: IndexSegment) -> None:
        """Let the merged segment take the place of its sources."""
        remaining = [each for each in self.segments if each not in sources]
        self.segments = [segment, *remaining] if segment.num_living else remaining

    def _tier(self, segment: IndexSegment) -> int | None:
        limits = (_TIER_SLACK * self.flat_rows * _FAN_OUT**tier for tier in range(2))
        return None if segment.is_flat else sum(segment.num_living > limit for limit in limits)

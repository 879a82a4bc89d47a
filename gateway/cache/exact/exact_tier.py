"""ExactTier: cache entries by fingerprint, in bounded memory; `eviction` chooses which goes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.eviction import Eviction, Ranked

DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024
_FULL_RATIO: Final = 0.9


class _Held(Ranked):
    """A cache entry with its rank."""

    __slots__ = ("entry", "is_quarantined")

    def __init__(self, entry: CacheEntry) -> None:
        super().__init__(
            entry.exact, tenant=entry.tenant, num_bytes=entry.num_bytes, cost_tokens=max(entry.cost_tokens, 0)
        )
        self.entry = entry
        self.is_quarantined = False


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The entries that a purge covers; fields that are None match every entry."""

    id: str | None = None
    tenant: str | None = None
    route: str | None = None
    text: str | None = None
    """A part of the last user text, in any case."""
    until: float | None = None
    """Entries made after this instant are not covered."""

    def covers(self, entry: CacheEntry) -> bool:
        """Return whether the purge covers an entry."""
        return self.matches(entry.id, entry.tenant, entry.route, entry.text, entry.created_at)

    def matches(self, entry_id: str, tenant: str, route: str, text: str | None, at: float) -> bool:
        """Return whether the purge covers something of this entry, tenant, route, text and instant."""
        return (
            self.id in (None, entry_id)
            and self.tenant in (None, tenant)
            and self.route in (None, route)
            and (self.until is None or at <= self.until)
            and (self.text is None or (text is not None and self.text.casefold() in text.casefold()))
        )


class ExactTier:
    """Cache entries by their exact digest. Single-threaded; time is passed in."""

    def __init__(
        self,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        on_removed: Callable[[CacheEntry], None] = lambda entry: None,
        on_evicted: Callable[[CacheEntry], None] = lambda entry: None,
    ) -> None:
        """`on_removed` gets every entry that leaves, for whatever reason, `on_evicted` those that make room.

        Raises:
            ValueError: `max_bytes` is below 1.
        """
        if max_bytes < 1:
            raise ValueError(f"max_bytes: expected a positive number, got {max_bytes}")
        self._max_bytes = max_bytes
        self._on_removed = on_removed
        self._on_evicted = on_evicted
        self._held: dict[bytes, _Held] = {}
        self._by_id: dict[str, bytes] = {}
        self._eviction = Eviction(max_bytes)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def num_bytes(self) -> int:
        """Memory of all entries."""
        return self._eviction.num_bytes

    def num_hits(self, exact: bytes) -> int:
        """Return how often the entry was served; 0 when it is not here."""
        held = self._held.get(exact)
        return 0 if held is None else held.num_hits

    def __contains__(self, exact: bytes | None) -> bool:
        return exact in self._held

    @property
    def is_full(self) -> bool:
        """Return whether the next entry evicts another one, or soon will."""
        return self.num_bytes > _FULL_RATIO * self._max_bytes

    def __iter__(self) -> Iterator[CacheEntry]:
        return (held.entry for held in tuple(self._held.values()))

    def find(self, exact: bytes, now: float, *, max_age_s: float | None = None) -> CacheEntry | None:
        """Return the entry that may be served, and count a hit; an expired one is removed."""
        held = self._held.get(exact)
        if held is None or held.is_quarantined:
            return None
        entry = held.entry
        if now >= entry.expires_at:
            self._remove(exact)
            return None
        if not entry.is_fresh(now, max_age_s):
            return None
        self._eviction.hit(held)
        return entry

    def by_id(self, entry_id: str) -> CacheEntry | None:
        """Return the entry of that id, also a quarantined one."""
        exact = self._by_id.get(entry_id)
        return None if exact is None else self._held[exact].entry

    def by_exact(self, exact: bytes) -> CacheEntry | None:
        """Return the entry of that fingerprint, also a quarantined one, without counting a hit."""
        held = self._held.get(exact)
        return None if held is None else held.entry

    def discard(self, exact: bytes) -> None:
        """Remove the entry, if there is one."""
        if exact in self._held:
            self._remove(exact)

    def put(self, entry: CacheEntry, now: float) -> bool:
        """Store an entry in place of an older one; return False when it is expired or larger than the tier."""
        if entry.num_bytes > self._max_bytes or now >= entry.expires_at:
            return False
        if self._by_id.get(entry.id, entry.exact) != entry.exact:
            return False  # ids name one entry only; this one is a mistake
        known = self._held.get(entry.exact)
        if known is not None:
            if known.entry.created_at > entry.created_at:
                return False
            self._remove(entry.exact)
        held = self._held[entry.exact] = _Held(entry)
        if known is not None and known.is_proven:
            held.is_proven, held.num_hits = True, known.num_hits  # a new response to a frequent request
        self._by_id[entry.id] = entry.exact
        self._eviction.add(held)
        self._make_room()
        return entry.exact in self._held

    def take(self, entry: CacheEntry, now: float) -> bool:
        """Store an entry of another process; as `put`."""
        return self.put(entry, now)

    def note_hit(self, exact: bytes) -> None:
        """Count a hit that another process served."""
        held = self._held.get(exact)
        if held is not None:
            self._eviction.hit(held)

    def quarantine(self, entry_id: str) -> CacheEntry | None:
        """Stop serving an entry without forgetting it; return None for an unknown id."""
        exact = self._by_id.get(entry_id)
        if exact is None:
            return None
        self._held[exact].is_quarantined = True
        return self._held[exact].entry

    def is_quarantined(self, entry_id: str) -> bool:
        """Return whether the entry was called wrong."""
        exact = self._by_id.get(entry_id)
        return exact is not None and self._held[exact].is_quarantined

    def purge(self, selection: Selection, *, dry_run: bool = True) -> list[CacheEntry]:
        """Return the entries that the selection covers, removed unless it is a dry run."""
        covered = [entry for entry in self if selection.covers(entry)]
        for entry in () if dry_run else covered:
            self._remove(entry.exact)
        return covered

    def expire(self, now: float) -> int:
        """Remove all expired entries; return how many there were."""
        late = [exact for exact, held in self._held.items() if now >= held.entry.expires_at]
        for exact in late:
            self._remove(exact)
        return len(late)

    def _make_room(self) -> None:
        while self.num_bytes > self._max_bytes and (victim := self._eviction.victim()) is not None:
            entry = self._held[victim.exact].entry
            self._remove(victim.exact, is_victim=True)
            self._on_evicted(entry)

    def _remove(self, exact: bytes, *, is_victim: bool = False) -> None:
        held = self._held.pop(exact)
        del self._by_id[held.entry.id]
        self._eviction.remove(held, is_victim=is_victim)
        self._on_removed(held.entry)

    def check_integrity(self) -> None:
        """Raise AssertionError when the counts are wrong."""
        assert self.num_bytes == sum(held.entry.num_bytes for held in self._held.values()) <= self._max_bytes
        assert self._by_id == {held.entry.id: exact for exact, held in self._held.items()}
        self._eviction.check_integrity()

"""SharedTier: a worker's view of the machine's exact tier: its own newest entries in memory, all others in the file."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

import msgspec

from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.exact_tier import ExactTier, Selection
from gateway.machine.answer_file import AnswerFile
from gateway.util.bounded_dict import Recent

NEWEST_BYTES: Final = 4 * 1024 * 1024
"""Memory of a worker for entries that may not be in the file yet."""
_MAX_KNOWN: Final = 10_000
_MAX_PURGES: Final = 256
_MAX_HITS: Final = 10_000


class SharedTier(ExactTier):
    """The entries of the file behind the interface of an ExactTier. The control process evicts."""

    def __init__(self, file: AnswerFile, *, on_removed: Callable[[CacheEntry], None]) -> None:
        """Read entries from `file`; `on_removed` gets entries, without their answers, that have left it."""
        super().__init__(max_bytes=NEWEST_BYTES, on_removed=on_removed)
        self._file = file
        self._gone = on_removed
        self._exact_by_id: Recent[str, bytes] = Recent(_MAX_KNOWN)
        """Fingerprints of entries that were served from the file, by id."""
        self._wrong: Recent[str, None] = Recent(_MAX_KNOWN)
        """Ids of quarantined entries."""
        self._indexed: OrderedDict[bytes, CacheEntry] = OrderedDict()
        """Entries of other processes that the vector index has, without answers and texts; the oldest first."""
        self._purges: deque[Selection] = deque(maxlen=_MAX_PURGES)
        self._hits: list[bytes] = []

    def __contains__(self, exact: bytes | None) -> bool:
        return super().__contains__(exact) or exact in self._indexed

    @property
    def is_full(self) -> bool:
        """Return False: an entry of another process takes no memory here."""
        return False

    def take_hits(self) -> list[bytes]:
        """Return the fingerprints of the entries that were served since the last call."""
        hits, self._hits = self._hits, []
        return hits

    def find(self, exact: bytes, now: float, *, max_age_s: float | None = None) -> CacheEntry | None:
        """Return the entry that may be served, and count a hit."""
        entry = super().find(exact, now, max_age_s=max_age_s)
        if entry is None:
            entry = self._stored(exact)
            if entry is None or entry.id in self._wrong or not entry.is_fresh(now, max_age_s):
                return None
            self._exact_by_id[entry.id] = exact
        if len(self._hits) < _MAX_HITS:
            self._hits.append(exact)
        return entry

    def by_id(self, entry_id: str) -> CacheEntry | None:
        """Return the entry of that id, also a quarantined one; of another process only once it was served here."""
        exact = self._exact_by_id.get(entry_id)
        return super().by_id(entry_id) or (None if exact is None else self._stored(exact))

    def by_exact(self, exact: bytes) -> CacheEntry | None:
        """Return the entry of that fingerprint, also a quarantined one, without counting a hit."""
        return super().by_exact(exact) or self._stored(exact)

    def take(self, entry: CacheEntry, now: float) -> bool:
        """Note an entry that another process stored and the index is about to have; False when it is expired."""
        if now >= entry.expires_at:
            return False
        self._indexed[entry.exact] = msgspec.structs.replace(entry, answer=b"", text=None)
        self._expire_indexed(now)
        return True

    def discard(self, exact: bytes) -> None:
        """Note that an entry has left the file."""
        super().discard(exact)
        entry = self._indexed.pop(exact, None)
        if entry is not None:
            self._gone(entry)

    def quarantine(self, entry_id: str) -> CacheEntry | None:
        """Stop serving an entry without forgetting it; return None for an unknown id."""
        super().quarantine(entry_id)
        self._wrong[entry_id] = None
        return self.by_id(entry_id)

    def is_quarantined(self, entry_id: str) -> bool:
        """Return whether the entry was called wrong."""
        return entry_id in self._wrong or super().is_quarantined(entry_id)

    def purge(self, selection: Selection, *, dry_run: bool = True) -> list[CacheEntry]:
        """Serve no entry that the selection covers any more, wherever it is; return those in memory."""
        if not dry_run:
            self._purges.append(selection)
        return super().purge(selection, dry_run=dry_run)

    def _stored(self, exact: bytes) -> CacheEntry | None:
        entry = self._file.entry(exact)
        if entry is None or any(purge.covers(entry) for purge in self._purges):
            return None
        return entry

    def _make_room(self) -> None:
        """Let go of the oldest entries in memory, which are in the file by now."""
        while self.num_bytes > NEWEST_BYTES and (victim := self._eviction.victim()) is not None:
            held = self._held.pop(victim.exact)
            del self._by_id[held.entry.id]
            self._eviction.remove(held, is_victim=True)
            self._exact_by_id[held.entry.id] = victim.exact

    def _expire_indexed(self, now: float) -> None:
        """Remove expired entries from the index: the file loses them without a notice."""
        while self._indexed and next(iter(self._indexed.values())).expires_at <= now:
            self._gone(self._indexed.popitem(last=False)[1])

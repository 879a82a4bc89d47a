"""Prefix blocks that running sequences are computing, so that others can wait for them and reuse them."""

from __future__ import annotations

from collections.abc import Iterable


class PendingPrefixes:
    """Map of block digests to the sequence that will register them; the first reservation of a digest counts."""

    def __init__(self) -> None:
        self._owners: dict[bytes, int] = {}
        self._owned: dict[int, list[bytes]] = {}

    def __contains__(self, digest: object) -> bool:
        return digest in self._owners

    def __len__(self) -> int:
        return len(self._owners)

    def reserve(self, seq_id: int, digests: Iterable[bytes]) -> None:
        """Record that the sequence computes these blocks, except those with an owner."""
        fresh = [digest for digest in digests if digest not in self._owners]
        if fresh:
            self._owned[seq_id] = fresh
            self._owners.update(dict.fromkeys(fresh, seq_id))

    def release(self, seq_id: int) -> None:
        """Remove the blocks of a sequence that finished its prefill, was preempted or ended."""
        for digest in self._owned.pop(seq_id, ()):
            del self._owners[digest]

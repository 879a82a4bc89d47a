"""SharedAddresses: open connections by client address, of all processes of a gateway together."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from gateway.machine.shared_counts import NUM_ADDRESSES, NUM_ROWS, WORD, RowLock, SharedCounts

WINDOW: Final = 64
"""Places that an address may have: a fixed number, from one on that its keyed digest gives."""


class SharedAddresses:
    """Part of the shared table with a place for each address that has connections.

    A process writes its own counts only, and decides under a lock. A place is free once no process counts in it.
    """

    def __init__(self, counts: SharedCounts) -> None:
        self._words = counts.words
        self._names = counts.addresses_begin
        self._counts = [self._names + NUM_ADDRESSES * (1 + column) for column in range(counts.num_columns)]
        self._own = self._counts[counts.column]
        self._key = counts.address_key
        self._lock = RowLock(counts.descriptor, NUM_ROWS + 1)
        self._places: dict[str, int] = {}
        """Places of the addresses that this process counts in."""

    def enter(self, address: str, most: int) -> bool:
        """Count one more connection; False when the address has `most`, or when no place is free for it."""
        if not self._lock.acquire():
            return False
        try:
            place = self._places.get(address)
            if place is None:
                name = self._name_of(address)
                place = self._find(name)
                if place is None:
                    return False
                self._words[self._names + place] = name
            if self._num_at(place) >= most:
                return False
            self._words[self._own + place] += 1
            self._places[address] = place
            return True
        finally:
            self._lock.release()

    def leave(self, address: str) -> None:
        """Uncount a connection that `enter` has counted."""
        place = self._places[address]
        self._words[self._own + place] -= 1
        if not self._words[self._own + place]:
            del self._places[address]

    def _find(self, name: int) -> int | None:
        """Return the place of an address, else a free one of its window; None without one."""
        free = None
        for step in range(WINDOW):
            place = (name + step) % NUM_ADDRESSES
            known = self._words[self._names + place]
            is_in_use = known != 0 and self._num_at(place) > 0
            if is_in_use and known == name:
                return place
            if not known:  # never used, so the address is nowhere behind it
                return place if free is None else free
            if free is None and not is_in_use:
                free = place
        return free

    def _num_at(self, place: int) -> int:
        words = self._words
        return sum([words[begin + place] for begin in self._counts])

    def _name_of(self, address: str) -> int:
        """Return a digest that nobody outside can foresee, so that no client chooses its neighbours."""
        digest = blake2b(address.encode(), digest_size=WORD, key=self._key).digest()
        return int.from_bytes(digest, "little", signed=True) or 1

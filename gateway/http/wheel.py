"""A wheel of deadlines: one coarse timer for every connection, nothing armed or cancelled per request."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class DeadlineWheel(Generic[Item]):
    """A timer wheel: which items to check by which time, at `resolution_s`; every item is in at most one slot.

    The wheel is lazy: an item that gained time is not moved. Its owner checks it early and puts it back.
    So the common case (a request that ends in time) costs nothing here.
    """

    def __init__(self, *, resolution_s: float, now: float) -> None:
        self.resolution_s = resolution_s
        self._next_slot = math.floor(now / resolution_s)
        self._slots: dict[int, dict[Item, None]] = {}
        self._slot_of: dict[Item, int] = {}

    def __len__(self) -> int:
        return len(self._slot_of)

    def look_at(self, item: Item, by: float) -> None:
        """Make `item` due at `by` or before: an earlier slot that it already has stays."""
        slot = max(math.ceil(by / self.resolution_s), self._next_slot)
        held = self._slot_of.get(item)
        if held is not None:
            if held <= slot:
                return
            del self._slots[held][item]
        self._slot_of[item] = slot
        self._slots.setdefault(slot, {})[item] = None

    def discard(self, item: Item) -> None:
        """Forget `item`; unknown ones are ignored."""
        slot = self._slot_of.pop(item, None)
        if slot is not None:
            del self._slots[slot][item]

    def due(self, now: float, *, limit: int) -> list[Item]:
        """Remove and return up to `limit` items whose slot has come, in no order.

        The rest stay due, so one tick is short.
        """
        current = math.floor(now / self.resolution_s)
        items: list[Item] = []
        while self._next_slot <= current:
            if not self._slots:
                self._next_slot = current + 1
                break
            bucket = self._slots.get(self._next_slot)
            while bucket:
                if len(items) >= limit:
                    return items
                item, _ = bucket.popitem()
                del self._slot_of[item]
                items.append(item)
            self._slots.pop(self._next_slot, None)
            self._next_slot += 1
        return items

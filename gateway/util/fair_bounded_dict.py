"""A mapping that stays small, in which no owner pushes out what another put."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FairRecent(Generic[K, V]):
    """At most `limit` keys: for one more, the owner that has most of them loses the one that it put longest ago."""

    __slots__ = ("_owner_of", "_parts", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._owner_of: dict[K, str] = {}
        self._parts: dict[str, OrderedDict[K, V]] = {}

    def __len__(self) -> int:
        return len(self._owner_of)

    def put(self, key: K, value: V, owner: str) -> None:
        """Put it, as the newest of its owner."""
        self.pop(key)
        self._owner_of[key] = owner
        self._parts.setdefault(owner, OrderedDict())[key] = value
        if len(self._owner_of) > self.limit:
            largest = max(self._parts.values(), key=len)
            self.pop(next(iter(largest)))

    def get(self, key: K) -> V | None:
        """What was put under the key, None when it is not known any more."""
        owner = self._owner_of.get(key)
        return None if owner is None else self._parts[owner][key]

    def pop(self, key: K) -> V | None:
        """The same, and forget it."""
        owner = self._owner_of.pop(key, None)
        if owner is None:
            return None
        part = self._parts[owner]
        value = part.pop(key)
        if not part:
            del self._parts[owner]
        return value

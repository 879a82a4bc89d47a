"""Mapping of bounded size, in which an owner cannot evict the keys of smaller owners."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FairRecent(Generic[K, V]):
    """Mapping of at most `limit` keys; one more evicts the oldest key of the owner with the most keys."""

    __slots__ = ("_owner_of", "_parts", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._owner_of: dict[K, str] = {}
        self._parts: dict[str, OrderedDict[K, V]] = {}

    def __len__(self) -> int:
        return len(self._owner_of)

    def put(self, key: K, value: V, owner: str) -> None:
        """Set a key as the newest of its owner."""
        self.pop(key)
        self._owner_of[key] = owner
        self._parts.setdefault(owner, OrderedDict())[key] = value
        if len(self._owner_of) > self.limit:
            largest = max(self._parts.values(), key=len)
            self.pop(next(iter(largest)))

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None when it is absent or evicted."""
        owner = self._owner_of.get(key)
        return None if owner is None else self._parts[owner][key]

    def pop(self, key: K) -> V | None:
        """Remove a key and return its value, or None when it is absent or evicted."""
        owner = self._owner_of.pop(key, None)
        if owner is None:
            return None
        part = self._parts[owner]
        value = part.pop(key)
        if not part:
            del self._parts[owner]
        return value

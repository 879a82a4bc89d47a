"""Mappings of bounded size, in which an owner cannot evict the keys of smaller owners.

Shares bind only when everything is full: a lone owner may use all of it. Beyond the limit the owner with the most keys
loses its oldest one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_NOTHING: Final[Mapping[object, object]] = {}


class OwnerShares(Generic[K, V]):
    """Ordered mappings of several owners, which together hold at most `limit` keys. Every step takes constant time."""

    __slots__ = ("_most", "_of_size", "_parts", "limit", "num_keys")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.num_keys = 0
        self._parts: dict[str, OrderedDict[K, V]] = {}
        self._of_size: dict[int, dict[str, None]] = {}
        """Owners by their number of keys."""
        self._most = 0
        """Largest number of keys of one owner."""

    def __len__(self) -> int:
        return self.num_keys

    def __iter__(self) -> Iterator[tuple[str, OrderedDict[K, V]]]:
        """Iterate over owners and their mappings."""
        return iter(self._parts.items())

    def find(self, owner: str) -> Mapping[K, V]:
        """Return the owner's mapping to read."""
        return self._parts.get(owner, _NOTHING)  # type: ignore[arg-type]

    def part(self, owner: str) -> OrderedDict[K, V]:
        """Return the owner's mapping to change, oldest key first; call `settle` after every change of its size."""
        part = self._parts.get(owner)
        if part is None:
            part = self._parts[owner] = OrderedDict()
        return part

    def settle(self, owner: str, num_added: int) -> Sequence[tuple[K, V]]:
        """Count keys added to the owner's mapping, or removed from it; return the items evicted for them."""
        part = self._parts[owner]
        num_before = len(part) - num_added
        if num_added == 1 and num_before and num_before == self._most and self.num_keys == self.limit:
            return (part.popitem(last=False),)  # the usual case of a flood changes no size
        if num_added or not part:
            self._move(owner, num_before, len(part))
        self.num_keys += num_added
        if self.num_keys <= self.limit:
            return ()
        return [self._evict() for _ in range(self.num_keys - self.limit)]

    def _evict(self) -> tuple[K, V]:
        owner = next(iter(self._of_size[self._most]))
        part = self._parts[owner]
        item = part.popitem(last=False)
        self.num_keys -= 1
        self._move(owner, len(part) + 1, len(part))
        return item

    def _move(self, owner: str, num_before: int, num_keys: int) -> None:
        """Note that the owner's number of keys changed."""
        if num_before:
            owners = self._of_size[num_before]
            del owners[owner]
            if not owners:
                del self._of_size[num_before]
        if num_keys:
            self._of_size.setdefault(num_keys, {})[owner] = None
        else:
            del self._parts[owner]
        self._most = max(self._most, num_keys)
        while self._most > 0 and self._most not in self._of_size:
            self._most -= 1


class FairRecent(Generic[K, V]):
    """Mapping of at most `limit` keys, which are unique among all owners."""

    __slots__ = ("_owner_of", "_shares")

    def __init__(self, limit: int) -> None:
        self._owner_of: dict[K, str] = {}
        self._shares: OwnerShares[K, V] = OwnerShares(limit)

    def __len__(self) -> int:
        return len(self._owner_of)

    def __contains__(self, key: K) -> bool:
        return key in self._owner_of

    def put(self, key: K, value: V, owner: str) -> Sequence[tuple[K, V]]:
        """Set a key as the newest of its owner; return the items evicted for it."""
        self.pop(key)
        self._owner_of[key] = owner
        self._shares.part(owner)[key] = value
        gone = self._shares.settle(owner, 1)
        for evicted, _ in gone:
            del self._owner_of[evicted]
        return gone

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None when it is absent or evicted."""
        owner = self._owner_of.get(key)
        return None if owner is None else self._shares.find(owner)[key]

    def pop(self, key: K) -> V | None:
        """Remove a key and return its value, or None when it is absent or evicted."""
        owner = self._owner_of.pop(key, None)
        if owner is None:
            return None
        value = self._shares.part(owner).pop(key)
        self._shares.settle(owner, -1)
        return value

    def oldest_of_each(self) -> list[tuple[K, V]]:
        """Return the oldest item of every owner."""
        return [next(iter(part.items())) for _, part in self._shares]

    def values(self) -> Iterator[V]:
        """Iterate over the values, one owner after another, the oldest of each first."""
        return (value for _, part in self._shares for value in part.values())

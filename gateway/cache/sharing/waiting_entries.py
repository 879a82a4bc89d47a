"""WaitingEntries: writes of entries that wait for the store, in bounded bytes, with a queue for each tenant.

Tenants take turns, and what does not fit costs the tenant that has most waiting its oldest write. So one tenant's flood
delays and drops no other's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from gateway.cache.exact.entry import CacheEntry


class _Write(Protocol):
    @property
    def key(self) -> str: ...

    @property
    def entry(self) -> CacheEntry | None: ...


W = TypeVar("W", bound=_Write)


class WaitingEntries(Generic[W]):
    """Writes that wait, one for each key."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._tenant_of: dict[str, str] = {}
        self._lines: OrderedDict[str, OrderedDict[str, W]] = OrderedDict()
        """The queue of each tenant, in the order of their turns."""
        self._bytes_of: dict[str, int] = {}
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._tenant_of)

    def __contains__(self, key: str) -> bool:
        return key in self._tenant_of

    def __iter__(self) -> Iterator[W]:
        return (write for line in tuple(self._lines.values()) for write in tuple(line.values()))

    def add(self, write: W, *, is_first: bool = False) -> list[W]:
        """Add a write at the end of its tenant's queue, or at its head; return the writes that were dropped for it."""
        self.pop(write.key)
        tenant, size = _owner(write), _size(write)
        line = self._lines.setdefault(tenant, OrderedDict())
        line[write.key] = write
        if is_first:
            line.move_to_end(write.key, last=False)
        self._tenant_of[write.key] = tenant
        self._bytes_of[tenant] = self._bytes_of.get(tenant, 0) + size
        self.num_bytes += size
        dropped = []
        while self.num_bytes > self._max_bytes:
            longest = max(self._bytes_of, key=self._bytes_of.__getitem__)
            oldest = self.pop(next(iter(self._lines[longest])))
            assert oldest is not None, "a line has writes"
            dropped.append(oldest)
        return dropped

    def pop(self, key: str) -> W | None:
        """Remove and return the write of this key, if there is one."""
        tenant = self._tenant_of.pop(key, None)
        if tenant is None:
            return None
        line = self._lines[tenant]
        write = line.pop(key)
        size = _size(write)
        self.num_bytes -= size
        self._bytes_of[tenant] -= size
        if not line:
            del self._lines[tenant], self._bytes_of[tenant]
        return write

    def take(self) -> W | None:
        """Remove and return the next write; its tenant's next turn comes after all others'."""
        if not self._lines:
            return None
        tenant, line = next(iter(self._lines.items()))
        self._lines.move_to_end(tenant)
        return self.pop(next(iter(line)))


def _owner(write: _Write) -> str:
    assert write.entry is not None, "only entries wait here"
    return write.entry.tenant


def _size(write: _Write) -> int:
    assert write.entry is not None, "only entries wait here"
    return write.entry.num_bytes

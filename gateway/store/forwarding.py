"""ForwardingStore hands each operation of a Store to one method by its name; OuterStore is one around another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from gateway.store.base import Changes, Exchanged, Hold, LogEntry, Room, Store, StoreEntry, check_key, check_value
from gateway.store.meter import Draw

T = TypeVar("T")

Pending = Coroutine[Any, Any, T]
"""An operation that may be awaited once."""


class ForwardingStore(ABC):
    """A Store for subclasses that treat every operation alike."""

    @abstractmethod
    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Carry out the operation of that name, with the arguments of the Store's method."""

    def get(self, space: str, key: str) -> Pending[StoreEntry | None]:
        """Implement `Store.get`."""
        return self._forward("get", space, key)

    def put(
        self, space: str, key: str, value: bytes, *, ttl_s: float | None = None, expect: int | None = None
    ) -> Pending[int | None]:
        """Implement `Store.put`."""
        check_key(key)
        check_value(value)
        return self._forward("put", space, key, value, ttl_s=ttl_s, expect=expect)

    def delete(self, space: str, key: str, *, expect: int | None = None) -> Pending[bool]:
        """Implement `Store.delete`."""
        return self._forward("delete", space, key, expect=expect)

    def keys(self, space: str, *, after: str = "", limit: int = 1000) -> Pending[tuple[str, ...]]:
        """Implement `Store.keys`."""
        return self._forward("keys", space, after=after, limit=limit)

    def changes(self, space: str, *, after: int | None = None, limit: int = 1000) -> Pending[Changes]:
        """Implement `Store.changes`."""
        return self._forward("changes", space, after=after, limit=limit)

    def append(self, space: str, log: str, payload: bytes, *, after: int | None = None) -> Pending[int | None]:
        """Implement `Store.append`."""
        check_value(payload)
        return self._forward("append", space, log, payload, after=after)

    def read_log(self, space: str, log: str, *, after: int = 0, limit: int = 1000) -> Pending[tuple[LogEntry, ...]]:
        """Implement `Store.read_log`."""
        return self._forward("read_log", space, log, after=after, limit=limit)

    def exchange(
        self, space: str, holder: str, draws: Sequence[Draw], hold: Hold | None = None, *, number: int = 0
    ) -> Pending[Exchanged]:
        """Implement `Store.exchange`."""
        return self._forward("exchange", space, holder, draws, hold, number=number)

    def room(self) -> Pending[Room | None]:
        """Implement `Store.room`."""
        return self._forward("room")

    def nodes(self) -> tuple[str, ...]:
        """Implement `Store.nodes`."""
        return ("",)

    def node_of(self, space: str) -> str:
        """Implement `Store.node_of`."""
        return ""

    def ping(self, node: str = "") -> Pending[None]:
        """Implement `Store.ping`."""
        return self._forward("ping")


class OuterStore(ForwardingStore):
    """A Store around another one, at the same servers; subclasses decide what reaches the inner one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        return await getattr(self._store, operation)(*arguments, **options)

    def nodes(self) -> tuple[str, ...]:
        """Implement `Store.nodes`."""
        return self._store.nodes()

    def node_of(self, space: str) -> str:
        """Implement `Store.node_of`."""
        return self._store.node_of(space)

    async def aclose(self) -> None:
        """Implement `Store.aclose`."""
        await self._store.aclose()

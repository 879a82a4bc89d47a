"""SchemaVersion of what a store holds, and StampedStore, which shares it only with versions that understand it.

The store carries the version of the newest process that wrote to it. Versions of one major that are at most one minor
apart share a store: a minor may add members to records, which older versions read past and leave in place, and it may
add keys and spaces. So replicas are upgraded one by one, and taken back one by one, from any minor to the next.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.forwarding import OuterStore

SPACE: Final = "store"
KEY: Final = "schema"
_TRIES: Final = 3


class SchemaVersion(NamedTuple):
    """The version of everything that processes share through a store."""

    major: int
    minor: int

    def shares_with(self, other: SchemaVersion) -> bool:
        """Return whether processes of both versions may use one store."""
        return self.major == other.major and abs(self.minor - other.minor) <= 1

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


SCHEMA: Final = SchemaVersion(1, 0)
"""The version of this program. A store without a mark is of version 1.0."""


class SchemaMark(msgspec.Struct, frozen=True):
    """The mark in the store; further members are for later versions."""

    major: int
    minor: int


class SchemaMismatch(StoreUnavailable):
    """The store is of a version that this process cannot share."""


class StampedStore(OuterStore):
    """A Store that refuses every operation while the store's version and its own do not go together.

    It compares them with its first operation and with every ping, and raises the store's mark to its own version.
    """

    def __init__(self, store: Store, schema: SchemaVersion = SCHEMA) -> None:
        super().__init__(store)
        self._schema = schema
        self._mismatch: str | None = None
        self._is_compared = False

    async def ping(self, node: str = "") -> None:
        """Ping the store, and compare the versions where the mark is."""
        await self._store.ping(node)
        if node == self._store.node_of(SPACE):
            await self._compare()
        self._require()

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        if not self._is_compared:
            await self._compare()
        self._require()
        return await super()._forward(operation, *arguments, **options)

    def _require(self) -> None:
        if self._mismatch is not None:
            raise SchemaMismatch(StoreLoss.REFUSED, self._mismatch, was_sent=False)

    async def _compare(self) -> None:
        for _ in range(_TRIES):
            entry = await self._store.get(SPACE, KEY)
            found = None if entry is None else _version_in(entry.value)
            if entry is not None and (found is None or not self._schema.shares_with(found)):
                self._mismatch = f"the store is of schema {found or '?'}, and this version shares {self._schema} ± 0.1"
                break
            self._mismatch = None
            if found is not None and found >= self._schema:
                break
            mark = msgspec.json.encode(SchemaMark(*self._schema))
            try:
                version = await self._store.put(SPACE, KEY, mark, expect=0 if entry is None else entry.version)
            except StoreUnavailable:
                break  # a full or read-only store can be read; the next ping tries again
            if version is not None:
                break
        self._is_compared = True


def _version_in(value: bytes) -> SchemaVersion | None:
    try:
        mark = msgspec.json.decode(value, type=SchemaMark)
    except msgspec.DecodeError:
        return None
    return SchemaVersion(mark.major, mark.minor)

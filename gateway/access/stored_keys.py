"""StoredKeys: API keys made at run time, held in the store and in memory by their hash."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final, Literal

import msgspec

PREFIX: Final = "key/"
KeyState = Literal["active", "expiring", "expired", "revoked"]


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """One API key; the record stays after the key's end, for later questions about its use."""

    tenant: str
    id: str
    sha256: str
    created_at: float
    created_by: str
    expires_at: float | None = None
    revoked_at: float | None = None
    revoked_by: str | None = None

    @property
    def name(self) -> str:
        """Name of the record in the store."""
        return key_name(self.tenant, self.id)

    def state(self, now: float) -> KeyState:
        """Return the key's state at `now`, in seconds since 1970."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is None:
            return "active"
        return "expired" if self.expires_at <= now else "expiring"


class StoredKeys:
    """All stored keys in memory; a lookup is one dictionary access, and for a hit a look at the clock."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._by_name: dict[str, StoredKey] = {}
        self._usable: dict[bytes, StoredKey] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def tenant_of(self, digest: bytes) -> str | None:
        """Return the tenant whose valid key has this SHA-256 digest, or None."""
        key = self._usable.get(digest)
        if key is None or (key.expires_at is not None and key.expires_at <= self._wall()):
            return None
        return key.tenant

    def get(self, tenant: str, id: str) -> StoredKey | None:
        """Return one key in any state, or None."""
        return self._by_name.get(key_name(tenant, id))

    def all(self, tenant: str | None = None) -> list[StoredKey]:
        """Return every key, or those of one tenant, newest first."""
        found = [key for key in self._by_name.values() if tenant in (None, key.tenant)]
        return heapq.nlargest(len(found), found, key=lambda key: key.created_at)

    def take(self, name: str, key: StoredKey | None) -> None:
        """Replace the key of this name; None removes it."""
        before = self._by_name.pop(name, None)
        if before is not None:
            self._usable.pop(bytes.fromhex(before.sha256), None)
        if key is None:
            return
        self._by_name[name] = key
        if key.revoked_at is None:
            self._usable[bytes.fromhex(key.sha256)] = key


def key_name(tenant: str, id: str) -> str:
    """Return the name of a key's record in the store."""
    return f"{PREFIX}{tenant}/{id}"

"""Restored: counts of the records that were written back to a store that had lost them."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.access.accounts import Admin, ApiToken
from gateway.access.api_keys import StoredKey
from gateway.access.records import Record, has_expired


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Counts of records; falsy when all are 0."""

    keys: int = 0
    admins: int = 0
    tokens: int = 0
    over: int = 0
    """Number of all these records that are revoked or deleted, and stay so."""

    def __bool__(self) -> bool:
        return bool(self.keys or self.admins or self.tokens)

    def __add__(self, other: Restored) -> Restored:
        return Restored(
            keys=self.keys + other.keys,
            admins=self.admins + other.admins,
            tokens=self.tokens + other.tokens,
            over=self.over + other.over,
        )

    def and_one(self, record: Record) -> Restored:
        """Return the counts with one record more."""
        return self + Restored(
            keys=int(isinstance(record, StoredKey)),
            admins=int(isinstance(record, Admin)),
            tokens=int(isinstance(record, ApiToken)),
            over=int(has_expired(record)),
        )

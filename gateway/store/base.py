"""Store: everything that two workers or replicas must agree on, behind one small interface.

A *space* is a named corner of the store, such as `policy` or `quota.support`. What is in one space changes together
(in Redis it lives on one node of a Cluster); two spaces know nothing of each other. Each write in a space takes the
space's next version, so a version is also the position of that write in the space's change feed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from gateway.store.meter import Draw, Grant

MAX_KEY_BYTES = 512
MAX_VALUE_BYTES = 16 * 1024 * 1024
MAX_CHANGES = 10_000
"""Changes that a space's feed remembers; who was away for longer reads everything again. A small space in a Redis
remembers fewer, so that its feed does not outweigh it."""


class StoreLoss(StrEnum):
    """Why the store cannot be used; the label of `penstock_store_failures_total`."""

    DOWN = "down"
    SLOW = "slow"
    FULL = "full"
    READ_ONLY = "read_only"
    EVICTING = "evicting"
    REFUSED = "refused"
    """It answered that this user or command is not allowed, or something that makes no sense."""
    CORRUPT = "corrupt"


class StoreUnavailable(Exception):
    """The store did not say that it did it. `reason` says why in one word."""

    def __init__(self, reason: StoreLoss, detail: str, *, was_sent: bool = True) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.was_sent = was_sent
        """False: it was surely not done."""


class StoreEntry(msgspec.Struct, frozen=True):
    """A value and the version that wrote it, from 1."""

    value: bytes
    version: int


class StoreChange(msgspec.Struct, frozen=True):
    """A key that was written or deleted; read it to learn its value."""

    version: int
    key: str


class Changes(msgspec.Struct, frozen=True):
    """A stretch of a space's feed."""

    cursor: int
    """Pass it as `after` next time."""
    changes: tuple[StoreChange, ...]
    is_gap: bool = False
    """Changes between `after` and this stretch are not known any more: list the space and go on from `cursor`."""


class LogEntry(msgspec.Struct, frozen=True):
    """One line of an append-only log; `seq` counts from 1 without holes."""

    seq: int
    payload: bytes


class Hold(msgspec.Struct, frozen=True):
    """Concurrent units that a holder keeps until it says otherwise or falls silent for `ttl_s`."""

    name: str
    limit: int
    """Of all holders together."""
    units: int
    """Wanted from now on, in place of what this holder had; 0 lets go."""
    ttl_s: float
    spare: int = 0
    """Wanted besides, as long as there is plenty: at most half of this holder's even share of what is free."""


class Exchanged(msgspec.Struct, frozen=True):
    """What a holder got."""

    at: float
    """The store's own clock, seconds since 1970."""
    grants: tuple[Grant, ...]
    """One for each draw, in order."""
    held: int
    """Units this holder has of the hold, at most `units + spare`; 0 without one."""
    num_holders: int
    """Holders seen in the space within their `ttl_s`, this one included; 1 without a hold."""


class Room(msgspec.Struct, frozen=True):
    """What may fill a store that has a bound; of several nodes the one with least room."""

    free_bytes: int
    """Negative when there is less room than there should be."""
    limit_bytes: int
    """Of all that is in it."""


class Store(Protocol):
    """Every method raises StoreUnavailable and changes nothing else; none waits longer than the operation timeout.

    Space names and keys are UTF-8 without NUL; a key is at most MAX_KEY_BYTES, a value MAX_VALUE_BYTES long, and
    ValueError says so.
    """

    async def get(self, space: str, key: str) -> StoreEntry | None:
        """The value, or None when it is absent or past its time."""
        ...

    async def put(
        self, space: str, key: str, value: bytes, *, ttl_s: float | None = None, expect: int | None = None
    ) -> int | None:
        """Write and announce it; the new version.

        With `expect` only over that version (0: only when absent); None is returned, and nothing written, otherwise.
        """
        ...

    async def delete(self, space: str, key: str, *, expect: int | None = None) -> bool:
        """Whether it was there (at version `expect`, if given) and is gone now; announced like a write."""
        ...

    async def keys(self, space: str, *, after: str = "", limit: int = 1000) -> tuple[str, ...]:
        """The next keys in the order of their bytes, those past their time left out."""
        ...

    async def changes(self, space: str, *, after: int | None = None, limit: int = 1000) -> Changes:
        """The feed behind a cursor, oldest first, each key once; `after=None` only tells where the feed is now."""
        ...

    async def append(self, space: str, log: str, payload: bytes, *, after: int | None = None) -> int | None:
        """Append; the entry's number. With `after` only when that is the last number, else None: for hash chains."""
        ...

    async def read_log(self, space: str, log: str, *, after: int = 0, limit: int = 1000) -> tuple[LogEntry, ...]:
        """Entries behind number `after`, oldest first."""
        ...

    async def exchange(self, space: str, holder: str, draws: Sequence[Draw], hold: Hold | None = None) -> Exchanged:
        """Give back and draw units of several meters and keep concurrent units, all in one atomic step."""
        ...

    async def room(self) -> Room | None:
        """How much may be written before too little is left for what matters more; None: the store has no bound."""
        ...

    async def ping(self) -> None:
        """Whether it can be written to right now."""
        ...

    async def aclose(self) -> None:
        """Let go of everything; never raises StoreUnavailable."""
        ...


def check_key(key: str) -> None:
    """Raises ValueError for a key that no store takes."""
    if not key or "\0" in key or len(key.encode()) > MAX_KEY_BYTES:
        raise ValueError(f"key: expected 1 to {MAX_KEY_BYTES} bytes without NUL, got {key[:80]!r}")


def check_value(value: bytes) -> None:
    """Raises ValueError for a value that no store takes."""
    if len(value) > MAX_VALUE_BYTES:
        raise ValueError(f"value: expected at most {MAX_VALUE_BYTES} bytes, got {len(value)}")

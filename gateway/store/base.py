"""Store: the interface to everything that two workers or replicas must agree on.

A *space* is a named part of the store, such as `policy` or `quota.support`. The contents of one space change together
(in Redis they are on one node of a Cluster); two spaces are independent. Each write in a space takes the space's next
version, so a version is also the position of that write in the space's change feed.
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
"""Changes that a space's feed remembers; a reader that was away for longer reads everything again. A small space in a
Redis remembers fewer, so that its feed does not outweigh it."""

REPEAT_S = 3600.0
"""Time for which the result of a holder's last exchange is there to be repeated."""


class StoreLoss(StrEnum):
    """The reason why the store cannot be used; the label of `penstock_store_failures_total`."""

    DOWN = "down"
    SLOW = "slow"
    FULL = "full"
    READ_ONLY = "read_only"
    EVICTING = "evicting"
    MOVING = "moving"
    """The keys are on their way from one node of a Cluster to another."""
    REFUSED = "refused"
    """The store refused the user or the command, or answered nonsense."""
    CORRUPT = "corrupt"


class StoreUnavailable(Exception):
    """The store did not confirm an operation; `reason` is the cause in one word."""

    def __init__(self, reason: StoreLoss, detail: str, *, was_sent: bool = True) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.was_sent = was_sent
        """True unless the operation was surely not done."""


class StoreEntry(msgspec.Struct, frozen=True):
    """A value with the version that wrote it, counted from 1."""

    value: bytes
    version: int


class StoreChange(msgspec.Struct, frozen=True):
    """A key that was written or deleted; its value has to be read."""

    version: int
    key: str


class Changes(msgspec.Struct, frozen=True):
    """A part of a space's feed."""

    cursor: int
    """The value of `after` for the next part."""
    changes: tuple[StoreChange, ...]
    is_gap: bool = False
    """True if changes between `after` and this part are lost: list the space and go on from `cursor`."""


class LogEntry(msgspec.Struct, frozen=True):
    """One line of an append-only log; `seq` counts from 1 without holes."""

    seq: int
    payload: bytes


class Hold(msgspec.Struct, frozen=True):
    """Concurrent units that a holder has until it changes them or is silent for `ttl_s`."""

    name: str
    limit: int
    """Maximum number of units of all holders together."""
    units: int
    """Units wanted from now on, in place of what this holder had; 0 gives all back."""
    ttl_s: float
    spare: int = 0
    """Further units wanted: at most half of this holder's even share of what is free."""


class Exchanged(msgspec.Struct, frozen=True):
    """The result of an exchange for one holder."""

    at: float
    """Time on the store's own clock, in seconds since 1970."""
    grants: tuple[Grant, ...]
    """One grant for each draw, in order."""
    held: int
    """Units of the hold that this holder has, at most `units + spare`; 0 without a hold."""
    num_holders: int
    """Holders seen in the space within their `ttl_s`, this one included; 1 without a hold."""


class Room(msgspec.Struct, frozen=True):
    """The memory of a store with a limit; of several nodes the one with least room."""

    free_bytes: int
    """Free memory; negative when there is less than there should be."""
    limit_bytes: int
    """Memory limit of everything stored."""


class Store(Protocol):
    """The shared store. Every method raises StoreUnavailable alone; none waits longer than the operation timeout.

    Space names and keys are UTF-8 without NUL; a key is at most MAX_KEY_BYTES, a value MAX_VALUE_BYTES long, and
    ValueError reports it.
    """

    async def get(self, space: str, key: str) -> StoreEntry | None:
        """Return the value, or None when it is absent or expired."""
        ...

    async def put(
        self, space: str, key: str, value: bytes, *, ttl_s: float | None = None, expect: int | None = None
    ) -> int | None:
        """Write and announce a value; return the new version.

        With `expect`, write only over that version (0: only when absent); otherwise write nothing and return None.
        """
        ...

    async def delete(self, space: str, key: str, *, expect: int | None = None) -> bool:
        """Delete and announce a key; return whether it was there, at version `expect` if given."""
        ...

    async def keys(self, space: str, *, after: str = "", limit: int = 1000) -> tuple[str, ...]:
        """Return the next keys in the order of their bytes, without expired ones."""
        ...

    async def changes(self, space: str, *, after: int | None = None, limit: int = 1000) -> Changes:
        """Return the feed behind a cursor, oldest first, each key once; `after=None` returns the cursor alone."""
        ...

    async def append(self, space: str, log: str, payload: bytes, *, after: int | None = None) -> int | None:
        """Append to a log; return the entry's number. With `after`, only when that is the last number, else None."""
        ...

    async def read_log(self, space: str, log: str, *, after: int = 0, limit: int = 1000) -> tuple[LogEntry, ...]:
        """Return the entries behind number `after`, oldest first."""
        ...

    async def exchange(
        self, space: str, holder: str, draws: Sequence[Draw], hold: Hold | None = None, *, number: int = 0
    ) -> Exchanged:
        """Return and draw units of several meters and hold concurrent units, all in one atomic step.

        A holder that numbers its exchanges, from 1, may repeat its last one within REPEAT_S: that returns the result of
        the first time, or does it now if it was not done. An exchange delivered after a later one is not done.
        """
        ...

    async def room(self) -> Room | None:
        """Return the room for entries that can be made again; None when the store has no limit."""
        ...

    def nodes(self) -> tuple[str, ...]:
        """Return the names of the servers that spaces are divided among, known so far; one, "", where they are not."""
        ...

    def node_of(self, space: str) -> str:
        """Return the name of the server that has a space now."""
        ...

    async def ping(self, node: str = "") -> None:
        """Check that a server can be written to; one that has no spaces any more passes."""
        ...

    async def aclose(self) -> None:
        """Close all connections; never raises StoreUnavailable."""
        ...


def check_key(key: str) -> None:
    """Raise ValueError for a key that no store takes."""
    if not key or "\0" in key or len(key.encode()) > MAX_KEY_BYTES:
        raise ValueError(f"key: expected 1 to {MAX_KEY_BYTES} bytes without NUL, got {key[:80]!r}")


def check_value(value: bytes) -> None:
    """Raise ValueError for a value that no store takes."""
    if len(value) > MAX_VALUE_BYTES:
        raise ValueError(f"value: expected at most {MAX_VALUE_BYTES} bytes, got {len(value)}")

"""FailedLogins: a limit on password attempts, counted in the store for all replicas.

Each counted name has a few free attempts: a source address, an account at one address, a device. Every further attempt
doubles the delay before the next. No name is an account alone, because a stranger's attempts would lock out its owner.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

import msgspec

from gateway.store.base import Store, StoreLoss, StoreUnavailable

SPACE: Final = "logins"
MAX_FAILED_LOGINS: Final = 5
"""Number of free attempts."""
FIRST_DELAY_S: Final = 2.0
"""First delay, in seconds: a burst of wrong passwords delays the owner at the same address no longer."""
MAX_DELAY_S: Final = 900.0
RESET_AFTER_S: Final = 3600.0
"""Seconds without an attempt after which the count restarts and the store drops it."""
_TRIES: Final = 20
"""Attempts at a conditional write while other replicas count too."""


class _Count(msgspec.Struct, frozen=True):
    num: int = 0
    last_at: float = 0.0

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next attempt is allowed, capped at the delay whatever the clocks show."""
        if self.num < MAX_FAILED_LOGINS:
            return 0.0
        delay_s = min(FIRST_DELAY_S * 2.0 ** min(self.num - MAX_FAILED_LOGINS, 16), MAX_DELAY_S)
        return min(max(self.last_at + delay_s - now, 0.0), delay_s)


_decoder: Final = msgspec.msgpack.Decoder(_Count)


class FailedLogins:
    """Counters of failed logins.

    An attempt is counted before its password is checked, so concurrent attempts gain nothing. The store holds one short
    value a name for an hour. `Passwords` bounds the number of names, because it checks one password at a time. Methods
    raise StoreUnavailable.
    """

    def __init__(self, store: Store, wall: Callable[[], float]) -> None:
        self._store = store
        self._wall = wall

    async def take(self, *whose: str) -> float:
        """Count one attempt for each name, in order, and return 0.

        Where a name must wait, return the seconds until its next attempt and count none.
        """
        taken: list[str] = []
        for name in whose:
            wait_s = await self._take(name)
            if wait_s > 0.0:
                for other in taken:
                    await self.give_back(other)
                return wait_s
            taken.append(name)
        return 0.0

    async def give_back(self, name: str) -> None:
        """Uncount the last attempt of a name, because it was right or never checked."""
        await self._change(name, lambda count: _Count(max(min(count.num, MAX_FAILED_LOGINS) - 1, 0), count.last_at))

    async def forget(self, name: str) -> None:
        """Reset the count of a name."""
        await self._store.delete(SPACE, _key(name))

    async def _take(self, name: str) -> float:
        now = self._wall()
        before = await self._change(
            name, lambda count: count if count.wait_s(now) > 0.0 else _Count(count.num + 1, now)
        )
        return before.wait_s(now)

    async def _change(self, name: str, change: Callable[[_Count], _Count]) -> _Count:
        """Apply `change` to a count by conditional writes, and return the count before."""
        key = _key(name)
        for _ in range(_TRIES):
            entry = await self._store.get(SPACE, key)
            before = _Count() if entry is None else self._decoded(entry.value)
            after = change(before)
            if after == before:
                return before
            value = msgspec.msgpack.encode(after)
            expect = 0 if entry is None else entry.version
            if await self._store.put(SPACE, key, value, ttl_s=RESET_AFTER_S, expect=expect) is not None:
                return before
        raise StoreUnavailable(StoreLoss.REFUSED, f"{_TRIES} others counted failed logins at the same time")

    def _decoded(self, value: bytes) -> _Count:
        try:
            found = _decoder.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _Count()
        return found if found.last_at > self._wall() - RESET_AFTER_S else _Count()


def _key(name: str) -> str:
    """Return the store key of a name, as a digest.

    A name can exceed a key's length, and users type passwords as names.
    """
    return blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()

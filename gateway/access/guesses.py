"""Guesses: how many passwords may be tried in a minute, by name and by address, counted in the store for all."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

import msgspec

from gateway.store.base import Loss, Store, StoreUnavailable

SPACE: Final = "logins"
MAX_GUESSES: Final = 5
WINDOW_S: Final = 60.0
_TRIES: Final = 20
"""Others may count at the same moment."""

_times: Final = msgspec.msgpack.Decoder(list[float])


class Guesses:
    """A guess is counted before its password is looked at, so that many at once are not more than one after another.

    Methods raise StoreUnavailable.
    """

    def __init__(self, store: Store, wall: Callable[[], float]) -> None:
        self._store = store
        self._wall = wall

    async def take(self, *whose: str) -> float:
        """Count one for each, the first one first; seconds until it is allowed, and then nothing is counted, or 0."""
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
        """The last one was right."""
        await self._change(name, lambda times: times[:-1])

    async def forget(self, name: str) -> None:
        """All of them."""
        await self._store.delete(SPACE, _key(name))

    async def _take(self, name: str) -> float:
        now = self._wall()
        before = await self._change(name, lambda times: [*times, now] if len(times) < MAX_GUESSES else times)
        return max(before[0] + WINDOW_S - now, 0.0) if len(before) >= MAX_GUESSES else 0.0

    async def _change(self, name: str, change: Callable[[list[float]], list[float]]) -> list[float]:
        """What was counted before; only over what was read."""
        key = _key(name)
        for _ in range(_TRIES):
            entry = await self._store.get(SPACE, key)
            since = self._wall() - WINDOW_S
            before = [] if entry is None else [at for at in _decoded(entry.value) if at > since]
            after = change(before)
            if after == before:
                return before
            value = msgspec.msgpack.encode(after)
            expect = 0 if entry is None else entry.version
            if await self._store.put(SPACE, key, value, ttl_s=WINDOW_S, expect=expect) is not None:
                return before
        raise StoreUnavailable(Loss.REFUSED, f"{_TRIES} others counted guesses at the same time")


def _key(name: str) -> str:
    """Names may be longer than a key, and passwords end up where names belong."""
    return blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _decoded(value: bytes) -> list[float]:
    try:
        return _times.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []

"""StoreLease: one process among all that share a store holds it; another one follows when it ends or stalls.

The holder renews it every TRY_S, and the others try as often to take it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.store.base import Store, StoreUnavailable

LEASE_S: Final = 15.0
"""Time after which a lease that is not renewed is free for others."""
TRY_S: Final = 5.0


class StoreLease:
    """A lease on one name; `hold` takes or renews it."""

    def __init__(self, store: Store, space: str, *, holder: str, clock: Callable[[], float]) -> None:
        """Make a lease that is not held; `holder` names this process, for operators."""
        self._store = store
        self._space = space
        self._holder = holder.encode()
        self._clock = clock
        self._version: int | None = None
        self._tried_at: float | None = None
        self._turn = asyncio.Lock()
        """Two renewals at the same time would each take the lease from the other."""

    async def hold(self) -> bool:
        """Return whether this process holds the lease now, taken or renewed where needed.

        Raises:
            StoreUnavailable: The store does not answer, and the last renewal is too long ago.
        """
        async with self._turn:
            return await self._hold()

    async def _hold(self) -> bool:
        now = self._clock()
        if self._tried_at is not None and now - self._tried_at < TRY_S:
            return self._version is not None
        try:
            version = await self._store.put(
                self._space, "lease", self._holder, ttl_s=LEASE_S, expect=self._version or 0
            )
        except StoreUnavailable:
            if self._version is not None and self._tried_at is not None and now - self._tried_at < LEASE_S / 2.0:
                return True
            self._version = None
            raise
        self._version, self._tried_at = version, now
        return version is not None

    async def release(self) -> None:
        """Give the lease back, so that another process can take it at once."""
        version, self._version = self._version, None
        if version is not None:
            with suppress(StoreUnavailable):  # then it expires
                await self._store.delete(self._space, "lease", expect=version)

"""LabelJournal: labels of pairs of models in the store; every replica learns from all of them, also after a restart.

A key is the time of its label in milliseconds, the process and a number, so that keys are in the order of time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from gateway.cache.exact.sealed import seal, unseal
from gateway.store.base import Store, StoreUnavailable
from gateway.store.follower import ChangeFollower
from gateway.util.bounded_dict import Recent
from routing_policies.quality.training.label import Label, decode_label, encode_label

SPACE: Final = "routing.labels"
TICK_S: Final = 1.0
MAX_WAITING: Final = 2000
"""Maximum number of labels that wait for the store; beyond it the oldest are dropped."""


class Takes(Protocol):
    """A consumer of labels."""

    def take(self, key: str, label: Label) -> list[str]:
        """Take a label; return the keys of those that it displaces."""
        ...

    def drop(self, key: str) -> None:
        """Drop a label that is gone."""
        ...


class LabelJournal:
    """Journal of labels; `record` never waits and never fails, and without the store it works in memory."""

    def __init__(
        self, store: Store, learner: Takes, *, holder: str, retention_s: float, wall: Callable[[], float]
    ) -> None:
        """Create a journal; `holder` names this process among all that share the store. The caller closes `store`."""
        self._store = store
        self._learner = learner
        self._holder = holder
        self._retention_s = retention_s
        self._wall = wall
        self._num = 0
        self._waiting: Recent[str, Label | None] = Recent(MAX_WAITING)
        self._follower = ChangeFollower(store, SPACE, self._take)
        self._is_wanted = asyncio.Event()

    def begin(self) -> None:
        """Start to read the store, because a route can learn from it."""
        self._is_wanted.set()

    def record(self, label: Label) -> None:
        """Record a label of this process: learn from it at once, and store it for all."""
        self._num += 1
        key = f"{int(label.at * 1000):013d}.{self._holder}.{self._num}"
        self._put(key, label)
        for gone in self._learner.take(key, label):
            self._learner.drop(gone)
            self._put(gone, None)
        self._is_wanted.set()

    async def run(self) -> None:
        """Wait for `begin`, read the stored labels, then write and follow until cancelled."""
        await self._is_wanted.wait()
        while True:
            with suppress(StoreUnavailable):  # its observer has the error
                await self._follower.catch_up()
                await self.write_pending()
            await asyncio.sleep(TICK_S)

    async def write_pending(self) -> None:
        """Write the labels that wait; raises StoreUnavailable."""
        while self._waiting:
            key, label = next(iter(self._waiting.items()))
            if label is None:
                await self._store.delete(SPACE, key)
            else:
                left_s = label.at + self._retention_s - self._wall()
                if left_s > 0:
                    await self._store.put(SPACE, key, seal(encode_label(label)), ttl_s=left_s)
            if key in self._waiting and self._waiting[key] is label:
                del self._waiting[key]

    async def flush(self) -> None:
        """Write what still waits, for a moment; call it when `run` has ended."""
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(TICK_S):
                await self.write_pending()

    def _put(self, key: str, label: Label | None) -> None:
        self._waiting[key] = label

    async def _take(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._learner.drop(key)
            return
        stored = unseal(value)
        label = None if stored is None else decode_label(stored)
        if label is None:  # damaged, or of another version's figures: of no use to this one
            return
        for gone in self._learner.take(key, label):  # the process that made it deletes them
            self._learner.drop(gone)

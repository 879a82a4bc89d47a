"""LabelJournal: labels of pairs of models in the store; every replica learns from all of them, also after a restart.

A key is the time of its label in milliseconds, the process and a number, so that keys are in the order of time.
`restart.WEAK/STRONG` is the time from which on a pair's labels count for its cascades.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from gateway.background.cascade_calibrator import CalibrationRestart
from gateway.cache.exact.sealed import seal, unseal
from gateway.store.base import Store, StoreUnavailable
from gateway.store.follower import ChangeFollower
from gateway.util.fair_bounded_dict import FairRecent
from routing_policies.quality.training.label import Label, decode_label, encode_label

SPACE: Final = "routing.labels"
TICK_S: Final = 1.0
MAX_WAITING: Final = 2000
"""Maximum number of labels that wait for the store; beyond it, the tenant with the most loses its oldest."""
_REMOVALS: Final = ""
"""Owner of the removals that wait."""
_RESTART: Final = "restart."
_RESTARTS: Final = " "
"""Owner of the restarts that wait: no tenant's name is a blank."""
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(CalibrationRestart).decode


class Takes(Protocol):
    """A consumer of labels."""

    def take(self, key: str, label: Label) -> list[str]:
        """Take a label; return the keys of those that it displaces."""
        ...

    def drop(self, key: str) -> None:
        """Drop a label that is gone."""
        ...

    def restart(self, restart: CalibrationRestart) -> None:
        """Leave earlier labels of a pair out of its cascades' thresholds."""
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
        self._waiting: FairRecent[str, Label | CalibrationRestart | None] = FairRecent(MAX_WAITING)
        self._follower = ChangeFollower(store, SPACE, self._take)
        self._is_wanted = asyncio.Event()

    def begin(self) -> None:
        """Start to read the store, because a route can learn from it."""
        self._is_wanted.set()

    def record(self, label: Label) -> None:
        """Record a label of this process: learn from it at once, and store it for all."""
        self._num += 1
        key = f"{int(label.at * 1000):013d}.{self._holder}.{self._num}"
        self._waiting.put(key, label, label.tenant)
        for gone in self._learner.take(key, label):
            self._learner.drop(gone)
            self._waiting.put(gone, None, _REMOVALS)
        self._is_wanted.set()

    def restart(self, restart: CalibrationRestart) -> None:
        """Take the thresholds of a pair's cascades back, here and elsewhere."""
        self._learner.restart(restart)
        self._waiting.put(f"{_RESTART}{restart.weak}/{restart.strong}", restart, _RESTARTS)
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
            for key, label in self._waiting.oldest_of_each():
                await self._write(key, label)
                if key in self._waiting and self._waiting.get(key) is label:
                    self._waiting.pop(key)

    async def flush(self) -> None:
        """Write what still waits, for a moment; call it when `run` has ended."""
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(TICK_S):
                await self.write_pending()

    async def _write(self, key: str, item: Label | CalibrationRestart | None) -> None:
        if item is None:
            await self._store.delete(SPACE, key)
            return
        left_s = item.at + self._retention_s - self._wall()
        if left_s > 0:
            value = encode_label(item) if isinstance(item, Label) else _encode(item)
            await self._store.put(SPACE, key, seal(value), ttl_s=left_s)

    async def _take(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._learner.drop(key)
            return
        stored = unseal(value)
        if key.startswith(_RESTART):
            restart = None if stored is None else _restart_of(stored)
            if restart is not None:
                self._learner.restart(restart)
            return
        label = None if stored is None else decode_label(stored)
        if label is None:  # damaged, or of another version's figures: of no use to this one
            return
        for gone in self._learner.take(key, label):  # the process that made it deletes them
            self._learner.drop(gone)


def _restart_of(data: bytes) -> CalibrationRestart | None:
    """Return the stored restart; None for damaged bytes."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None

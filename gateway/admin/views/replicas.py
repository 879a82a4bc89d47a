"""Replicas: totals over every process that serves. Each puts a small report into the store while a page is open.

Space `replicas`: `viewer` is there, for some seconds, while a page is open anywhere. A process that finds it puts
`process/<name>` every second, and deletes it when it leaves. A process that stops without that is lost, and is shown
as lost for some minutes. With an embedded store there are no other processes, and nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from gateway.admin.views.live_state import LiveState
from gateway.store.base import Store, StoreUnavailable
from gateway.telemetry.window import WINDOWS_S, Totals
from gateway.timeline import Clock

SPACE: Final = "replicas"
REPORT_S: Final = 1.0
_VIEWER: Final = "viewer"
_VIEWER_TTL_S: Final = 10.0
_SILENT_S: Final = 4.0
"""Time without a new report, while a page is open, after which a process is lost."""
_RETENTION_S: Final = 600.0
"""Time for which a lost process is still shown."""
_MAX_PROCESSES: Final = 200


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one process."""

    name: str
    at: float
    """Seconds since 1970, by the process's own clock."""
    revision: str
    live: LiveState
    windows: dict[int, Totals]
    """Totals by window, in seconds."""
    series: dict[int, list[Totals]]


class Lost(msgspec.Struct, frozen=True):
    """A process that fell silent without taking its leave."""

    name: str
    silent_s: float
    """Least time of the silence."""


class _Seen:
    """The last report of one process; versions are compared, because clocks differ."""

    __slots__ = ("changed_at", "is_moving", "version")

    def __init__(self, version: int, now: float, *, is_moving: bool) -> None:
        self.version = version
        self.changed_at = now
        self.is_moving = is_moving
        """True if the report was put while a page was open here; an earlier report may be of any age."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(ReplicaReport)


class Replicas:
    """The other processes by their last reports. Everything runs on the event loop."""

    def __init__(self, store: Store | None, name: str, report: Callable[[], ReplicaReport], *, clock: Clock) -> None:
        """Set up the reports; `store` is None when no other process can see it, and this process is alone."""
        self._store = store
        self._own_key = f"process/{name}"
        self._report = report
        self._clock = clock
        self._wanted_at = -_VIEWER_TTL_S
        self._viewer_put_at = -_VIEWER_TTL_S
        self._others: tuple[ReplicaReport, ...] = ()
        self._seen: dict[str, _Seen] | None = None
        self.lost: tuple[Lost, ...] = ()
        """Processes that reported and fell silent, as far as a process with an open page can see."""
        self.is_store_lost = False

    @property
    def is_alone(self) -> bool:
        """Return whether other processes cannot be seen."""
        return self._store is None

    @property
    def others(self) -> tuple[ReplicaReport, ...]:
        """Reports of this moment from the other processes; empty until a page is open."""
        return self._others

    def look(self) -> None:
        """Note a page view: the other processes report for the next seconds."""
        self._wanted_at = self._clock()

    async def run(self) -> None:
        """Report and read while there is a viewer, for ever; ends by cancellation."""
        while self._store is not None:
            try:
                await self._exchange(self._store)
                self.is_store_lost = False
            except StoreUnavailable:
                self.is_store_lost = True
                self._look_away()
            await asyncio.sleep(REPORT_S)

    async def leave(self) -> None:
        """Take the own report away."""
        if self._store is not None:
            with suppress(StoreUnavailable):  # it ends by itself
                await self._store.delete(SPACE, self._own_key)

    async def _exchange(self, store: Store) -> None:
        now = self._clock()
        is_viewed_here = now - self._wanted_at < _VIEWER_TTL_S
        if is_viewed_here and now - self._viewer_put_at > _VIEWER_TTL_S / 3:
            await store.put(SPACE, _VIEWER, b"", ttl_s=_VIEWER_TTL_S)
            self._viewer_put_at = now
        if not is_viewed_here and await store.get(SPACE, _VIEWER) is None:
            self._look_away()
            return
        await store.put(SPACE, self._own_key, _encode(self._report()), ttl_s=_RETENTION_S)
        if is_viewed_here:
            self._others = await self._read(store, now)
        else:
            self._look_away()

    def _look_away(self) -> None:
        self._others, self._seen, self.lost = (), None, ()

    async def _read(self, store: Store, now: float) -> tuple[ReplicaReport, ...]:
        keys = await store.keys(SPACE, after="process/", limit=_MAX_PROCESSES)
        wanted = [key for key in keys if key.startswith("process/") and key != self._own_key]
        entries = await asyncio.gather(*(store.get(SPACE, key) for key in wanted))
        there = {key: entry for key, entry in zip(wanted, entries, strict=True) if entry is not None}
        self._note({key: entry.version for key, entry in there.items()}, now)
        reports = [_decoded(there[key].value) for key, seen in self._heard(now) if seen]
        return tuple(report for report in reports if report is not None)

    def _note(self, versions: dict[str, int], now: float) -> None:
        """Note which reports are new since the last view; those of the first view may be of any age."""
        before, self._seen = self._seen, {}
        for key, version in versions.items():
            known = (before or {}).get(key)
            is_new = known is None or known.version != version
            if known is None or is_new:
                known = _Seen(version, now, is_moving=before is not None)
            self._seen[key] = known
        self.lost = tuple(
            Lost(key.removeprefix("process/"), now - self._seen[key].changed_at)
            for key, is_heard in self._heard(now)
            if not is_heard and now - self._seen[key].changed_at >= _SILENT_S
        )

    def _heard(self, now: float) -> list[tuple[str, bool]]:
        """Return each process that has a report, and whether the report is of now."""
        seen = self._seen or {}
        return [(key, one.is_moving and now - one.changed_at < _SILENT_S) for key, one in seen.items()]


def windows_of(totals: Callable[[float], Totals]) -> dict[int, Totals]:
    """Return all windows that pages offer."""
    return {window: totals(window) for window in WINDOWS_S}


def _decoded(data: bytes) -> ReplicaReport | None:
    """Decode a report; None for that of a process of another version."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None

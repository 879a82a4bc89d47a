"""A store in this process' memory: one replica, nothing persistent."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from gateway.store.base import Changes, Exchanged, Hold, LogEntry, StoreChange, StoreEntry, check_key, check_value
from gateway.store.meter import Draw, draw_units, even_share


class MemoryStore:
    """A Store. Every method runs to its end on the event loop, so each is atomic by itself."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._entries: dict[tuple[str, str], tuple[StoreEntry, float]] = {}
        """Value and version, and when its time is over."""
        self._feed: defaultdict[str, list[StoreChange]] = defaultdict(list)
        self._logs: defaultdict[tuple[str, str], list[LogEntry]] = defaultdict(list)
        self._meters: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        self._holds: defaultdict[tuple[str, str], dict[str, tuple[int, float]]] = defaultdict(dict)
        self._last: dict[tuple[str, str], tuple[int, Exchanged | None]] = {}

    async def get(self, space: str, key: str) -> StoreEntry | None:
        """Return a value, or None when it is absent or past its time."""
        return self._found(space, key)

    async def put(
        self, space: str, key: str, value: bytes, *, ttl_s: float | None = None, expect: int | None = None
    ) -> int | None:
        """Write a value; with `expect` only over that version."""
        check_key(key)
        check_value(value)
        if not self._is_at(space, key, expect):
            return None
        version = self._announce(space, key)
        ends_at = float("inf") if ttl_s is None else self._wall() + ttl_s
        self._entries[space, key] = StoreEntry(value, version), ends_at
        return version

    async def delete(self, space: str, key: str, *, expect: int | None = None) -> bool:
        """Delete a value; with `expect` only at that version."""
        if self._found(space, key) is None or not self._is_at(space, key, expect):
            return False
        del self._entries[space, key]
        self._announce(space, key)
        return True

    async def keys(self, space: str, *, after: str = "", limit: int = 1000) -> tuple[str, ...]:
        """Return keys in the order of their bytes."""
        names = [key for where, key in self._entries if where == space and self._found(space, key) is not None]
        return tuple(sorted((key for key in names if key.encode() > after.encode()), key=str.encode)[:limit])

    async def changes(self, space: str, *, after: int | None = None, limit: int = 1000) -> Changes:
        """Return the feed behind a cursor, each key once, at its newest change."""
        feed = self._feed[space]
        if after is None or after > len(feed):
            return Changes(len(feed), (), is_gap=after is not None)
        newest = {change.key: change for change in feed[after:]}
        found = tuple(change for change in feed[after:] if newest[change.key] is change)[:limit]
        return Changes(found[-1].version if found else after, found)

    async def append(self, space: str, log: str, payload: bytes, *, after: int | None = None) -> int | None:
        """Append to a log; with `after` only behind that entry."""
        entries = self._logs[space, log]
        if after is not None and after != len(entries):
            return None
        entries.append(LogEntry(len(entries) + 1, payload))
        return len(entries)

    async def read_log(self, space: str, log: str, *, after: int = 0, limit: int = 1000) -> tuple[LogEntry, ...]:
        """Return entries behind a number, oldest first."""
        return tuple(self._logs[space, log][after : after + limit])

    async def exchange(
        self, space: str, holder: str, draws: Sequence[Draw], hold: Hold | None = None, *, number: int = 0
    ) -> Exchanged:
        """Draw units of meters and keep concurrent units in one step; `draw` has the arithmetic."""
        last_number, done = self._last.get((space, holder), (0, None))
        if done is not None and 0 < number <= last_number:
            return done
        now = self._wall()
        held, num_holders = (0, 1) if hold is None else self._keep(space, holder, hold, now)
        grants = tuple(draw_units(self._meters[space, each.meter.name], each, now, num_holders) for each in draws)
        done = Exchanged(now, grants, held, num_holders)
        self._last[space, holder] = number, done
        return done

    async def room(self) -> None:
        """Return None: the store has no bound."""

    def nodes(self) -> tuple[str, ...]:
        """Return one name: the store is not divided among servers."""
        return ("",)

    def node_of(self, space: str) -> str:
        """Return the one name."""
        return ""

    async def ping(self, node: str = "") -> None:
        """Return at once: there is nothing that could be lost."""

    async def aclose(self) -> None:
        """Let go of everything."""
        self._entries.clear()

    def _found(self, space: str, key: str) -> StoreEntry | None:
        entry, ends_at = self._entries.get((space, key), (None, 0.0))
        return entry if self._wall() < ends_at else None

    def _is_at(self, space: str, key: str, expect: int | None) -> bool:
        found = self._found(space, key)
        return expect is None or expect == (0 if found is None else found.version)

    def _announce(self, space: str, key: str) -> int:
        feed = self._feed[space]
        feed.append(StoreChange(len(feed) + 1, key))
        return len(feed)

    def _keep(self, space: str, holder: str, hold: Hold, now: float) -> tuple[int, int]:
        """Return the units held from now on, and how many holders there are."""
        holders = self._holds[space, hold.name]
        for name in [name for name, (_, ends_at) in holders.items() if ends_at <= now or name == holder]:
            del holders[name]
        free = hold.limit - sum(units for units, _ in holders.values())
        units = max(min(hold.units, free), 0)
        units += even_share(free - units, hold.spare, 0, len(holders) + 1)
        holders[holder] = units, now + hold.ttl_s
        return units, len(holders)

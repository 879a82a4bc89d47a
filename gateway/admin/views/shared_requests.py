"""SharedRequests: finished requests of every process that shares a store, while a page shows them.

Space `requests`: a process with an open page puts `looking/<process>` with its filters. The others then put their
newest requests under each filter as `recent/<process>`. `ask/<request id>` requests all data of one request, and
the process that has it puts `found/<request id>`. Every key expires seconds later. While no page is open, a process
reads one short list of keys a second and writes nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from gateway.store.base import Store, StoreUnavailable
from gateway.telemetry.records.recent import ExplainedRequest, Filter, RecentRequests, ShownRequest
from gateway.timeline import Clock

T = TypeVar("T")

SPACE: Final = "requests"
Where = Mapping[Filter, str]
MAX_ROWS: Final = 100
"""Requests that a process shows the others under one filter."""
_IDLE_S: Final = 1.0
_BUSY_S: Final = 0.5
_WANTED_S: Final = 10.0
"""Time after the last page view for which other processes continue to report."""
_AGAIN_S: Final = 3.0
"""Interval at which unchanged rows are put again, so that they do not expire."""
_REQUEST_TTL_S: Final = 5.0
_FIND_S: Final = 2.5
_FIND_STEP_S: Final = 0.1
_MAX_FILTERS: Final = 16
_MAX_KEYS: Final = 1000
_MAX_ID_BYTES: Final = 256

_Filters = tuple[tuple[Filter, str], ...]
_encode: Final = msgspec.msgpack.Encoder().encode
_wanted_decoder: Final = msgspec.msgpack.Decoder(list[_Filters])
_rows_decoder: Final = msgspec.msgpack.Decoder(list[tuple[_Filters, list[ShownRequest]]])
_one_decoder: Final = msgspec.msgpack.Decoder(ExplainedRequest)


class _Standing:
    """One filter of other processes' pages, answered while they are open."""

    def __init__(self) -> None:
        self.rows: deque[ShownRequest] = deque(maxlen=MAX_ROWS)
        self._last = 0

    def catch_up(self, recent: RecentRequests, where: Where) -> bool:
        """Take what finished since the last time; whether anything did."""
        fresh = recent.newest(after=self._last, limit=MAX_ROWS, where=dict(where))
        self._last = recent.num_seen
        self.rows.extendleft(reversed(fresh))
        return bool(fresh)


class SharedRequests:
    """This process's finished requests for the others, and theirs for it. Everything runs on the event loop."""

    def __init__(self, store: Store | None, name: str, recent: RecentRequests, *, clock: Clock) -> None:
        """Set up the sharing; `store` is None when no other process can see it, and this process is alone."""
        self._store = store
        self._name = name
        self._recent = recent
        self._clock = clock
        self._wanted: dict[_Filters, float] = {}
        self._published: tuple[_Filters, ...] = ()
        self._published_at = self._delivered_at = clock() - _AGAIN_S
        self._standing: dict[_Filters, _Standing] = {}
        self._others: dict[_Filters, list[ShownRequest]] = {}

    def look(self, where: Where) -> None:
        """Note a page view with this filter: the others' requests come for the next seconds."""
        key = _filters(where)
        if key in self._wanted or len(self._wanted) < _MAX_FILTERS:
            self._wanted[key] = self._clock()

    def others(self, where: Where) -> Sequence[ShownRequest]:
        """Return the others' newest requests under a filter in use, in no order."""
        return self._others.get(_filters(where), ())

    async def find(self, request_id: str) -> ExplainedRequest | None:
        """Return one request of any process; None when no process reports it within some seconds."""
        found = self._recent.find(request_id)
        store = self._store
        if found is not None or store is None or len(request_id.encode()) > _MAX_ID_BYTES or "\0" in request_id:
            return found
        with suppress(StoreUnavailable):  # then only this process can answer; the page shows that
            await store.put(SPACE, f"ask/{request_id}", b"", ttl_s=_REQUEST_TTL_S)
            for _ in range(round(_FIND_S / _FIND_STEP_S)):
                entry = await store.get(SPACE, f"found/{request_id}")
                if entry is not None:
                    return _decoded(_one_decoder, entry.value)
                await asyncio.sleep(_FIND_STEP_S)
        return None

    async def run(self) -> None:
        """Publish and read for ever; ends by cancellation."""
        while self._store is not None:
            try:
                is_busy = await self._exchange(self._store)
            except StoreUnavailable:
                is_busy, self._others, self._published = False, {}, ()
            await asyncio.sleep(_BUSY_S if is_busy else _IDLE_S)

    async def leave(self) -> None:
        """Take away what this process put."""
        if self._store is not None:
            with suppress(StoreUnavailable):  # it ends by itself
                await self._store.delete(SPACE, f"looking/{self._name}")
                await self._store.delete(SPACE, f"recent/{self._name}")

    async def _exchange(self, store: Store) -> bool:
        """Exchange requests with the other processes; return whether any page is open."""
        is_watching = await self._publish(store)
        keys = await store.keys(SPACE, limit=_MAX_KEYS)
        for key in keys:
            if key.startswith("ask/"):
                await self._answer(store, key.removeprefix("ask/"), keys)
        lookers = [key for key in keys if key.startswith("looking/") and key != f"looking/{self._name}"]
        await self._publish_to(store, lookers)
        self._others = await self._read(store, keys) if is_watching else {}
        return is_watching or bool(lookers)

    async def _publish(self, store: Store) -> bool:
        """Publish the filters of open pages here, if there are any."""
        now = self._clock()
        self._wanted = {key: at for key, at in self._wanted.items() if now - at < _WANTED_S}
        wanted = tuple(sorted(self._wanted))
        if wanted and (wanted != self._published or now - self._published_at >= _AGAIN_S):
            await store.put(SPACE, f"looking/{self._name}", _encode(wanted), ttl_s=_WANTED_S)
            self._published, self._published_at = wanted, now
        return bool(wanted)

    async def _answer(self, store: Store, request_id: str, keys: Sequence[str]) -> None:
        if f"found/{request_id}" in keys:
            return
        found = self._recent.find(request_id)
        if found is not None:
            await store.put(SPACE, f"found/{request_id}", _encode(found), ttl_s=_REQUEST_TTL_S)

    async def _publish_to(self, store: Store, lookers: Sequence[str]) -> None:
        """Put the newest requests under every filter of the other processes."""
        wanted = list(dict.fromkeys(_flat(await _values(store, lookers))))[:_MAX_FILTERS]
        is_new = wanted != list(self._standing)
        self._standing = {key: self._standing.get(key) or _Standing() for key in wanted}
        for key, standing in self._standing.items():
            is_new = standing.catch_up(self._recent, dict(key)) or is_new
            await asyncio.sleep(0)  # each filter reads thousands of records: others have their turn between
        now = self._clock()
        if wanted and (is_new or now - self._delivered_at >= _AGAIN_S):
            rows = [(key, list(standing.rows)) for key, standing in self._standing.items()]
            await store.put(SPACE, f"recent/{self._name}", _encode(rows), ttl_s=_WANTED_S)
            self._delivered_at = now

    async def _read(self, store: Store, keys: Sequence[str]) -> dict[_Filters, list[ShownRequest]]:
        other_keys = [key for key in keys if key.startswith("recent/") and key != f"recent/{self._name}"]
        found: dict[_Filters, list[ShownRequest]] = {}
        for value in await _values(store, other_keys):
            for key, rows in _decoded(_rows_decoder, value) or ():
                found.setdefault(key, []).extend(rows)
        return found


async def _values(store: Store, keys: Iterable[str]) -> list[bytes]:
    entries = await asyncio.gather(*(store.get(SPACE, key) for key in keys))
    return [entry.value for entry in entries if entry is not None]


def _flat(values: Iterable[bytes]) -> list[_Filters]:
    return [key for value in values for key in _decoded(_wanted_decoder, value) or ()]


def _filters(where: Where) -> _Filters:
    return tuple(sorted(where.items()))


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T | None:
    """Decode rows; None for those of a process of another version."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None

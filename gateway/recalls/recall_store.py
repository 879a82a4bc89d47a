"""RecallStore: everything about recalls that replicas share and that outlives a process.

Space `recalls.received.TENANT`, each key with the time for which receivers are remembered:

q.REQUEST               the similar answer that a request received
e.ENTRY.REQUEST         the requests that received an entry and have no notice yet
t.MILLISECONDS.ENTRY.REQUEST    the same in the order of time, for the bound on their number
f.ENTRY                 the newest finding that an entry was served wrongly

Space `recalls.notices.TENANT`:

notices                 the notices in order, changed by compare-and-set alone: one for each request
delivery                how far the webhook has got
o.ENTRY                 a finding whose receivers may not all have their notice

A receiver is written before its entry's finding is read, and a finding before its receivers are read. So one of the
two sees the other, whichever processes they run in, and the notice is added by either or both: once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import msgspec

from gateway.cache.exact.sealed import SealedCodec
from gateway.recalls.notice import RecallNotice, ReceivedAnswer, WrongAnswer, notice_of
from gateway.store.base import Store

LATE_S: Final = 60.0
"""Time after a finding in which its entry may still be served, by processes that have not heard of it. An answer served
later was served because a review took the finding back."""
_PAGE: Final = 500
_LONG_BYTES: Final = 64 * 1024
"""Size from which notices are decoded beside the event loop."""
_NOTICES, _DELIVERY, _OPEN = "notices", "delivery", "o."
_ANSWER, _RECEIVER, _BY_TIME, _FINDING = "q.", "e.", "t.", "f."


class DeliveryState(msgspec.Struct, frozen=True, array_like=True):
    """The state of one tenant's webhook."""

    position: int = 0
    """Position of the last notice that was sent for the first time."""
    failed: tuple[int, ...] = ()
    """Positions of notices that are to be sent again, the longest waiting first."""

    def waiting(self, notices: Sequence[RecallNotice]) -> list[RecallNotice]:
        """Return the notices that are to be sent: new ones in order, then failed ones."""
        by_position = {notice.position: notice for notice in notices}
        again = [by_position[position] for position in self.failed if position in by_position]
        return [notice for notice in notices if notice.position > self.position] + again

    def after(self, notice: RecallNotice, *, is_open: bool) -> DeliveryState:
        """Return the state after an attempt; `is_open` means that another one follows."""
        failed = tuple(position for position in self.failed if position != notice.position)
        return DeliveryState(max(self.position, notice.position), (*failed, notice.position) if is_open else failed)


class NoticeList(msgspec.Struct, frozen=True, array_like=True):
    """The notices of a tenant, oldest first."""

    notices: tuple[RecallNotice, ...] = ()


_answers: Final = SealedCodec(ReceivedAnswer)
_findings: Final = SealedCodec(WrongAnswer)
_lists: Final = SealedCodec(NoticeList)
_states: Final = SealedCodec(DeliveryState)


class RecallStore:
    """Receivers, findings, notices and deliveries by tenant. Every coroutine raises StoreUnavailable alone."""

    def __init__(self, store: Store, *, retention_s: float, max_answers: int, wall: Callable[[], float]) -> None:
        """Use a store, which the caller closes.

        Args:
            store: The store of all replicas.
            retention_s: Time for which a receiver, and then its notice, is remembered.
            max_answers: Number of receivers, and of notices, that are remembered for each tenant; the oldest go first.
            wall: Seconds since 1970.
        """
        self._store = store
        self._retention_s = retention_s
        self._max_answers = max_answers
        self._wall = wall

    # Receivers

    async def add_answer(self, answer: ReceivedAnswer) -> WrongAnswer | None:
        """Remember a receiver; return the finding that its entry is wrong, if there is one that concerns it."""
        space, ttl_s = _received(answer.tenant), answer.served_at + self._retention_s - self._wall()
        if ttl_s <= 0.0:
            return None
        key = _ANSWER + answer.request_id
        if await self._store.put(space, key, _answers.encode(answer), ttl_s=ttl_s, expect=0) is None:
            known = await self.find_answer(answer.tenant, answer.request_id)
            if known is None or known.is_recalled:
                return None
        pair = f"{answer.entry_id}.{answer.request_id}"
        await asyncio.gather(
            self._store.put(space, _RECEIVER + pair, b"1", ttl_s=ttl_s),
            self._store.put(space, f"{_BY_TIME}{int(answer.served_at * 1000):013d}.{pair}", b"1", ttl_s=ttl_s),
        )
        entry = await self._store.get(space, _FINDING + answer.entry_id)
        wrong = None if entry is None else _findings.decode(entry.value)
        return wrong if wrong is not None and _concerns(wrong, answer) else None

    async def find_answer(self, tenant: str, request_id: str) -> ReceivedAnswer | None:
        """Return the similar answer that a request of this tenant received; None where none is remembered."""
        entry = await self._store.get(_received(tenant), _ANSWER + request_id)
        return None if entry is None else _answers.decode(entry.value)

    async def trim(self, tenant: str) -> int:
        """Forget the oldest receivers beyond the bound; return their number."""
        space = _received(tenant)
        keys = [key async for key in self._keys(space, _BY_TIME)]
        beyond = keys[: max(0, len(keys) - self._max_answers)]
        for key in beyond:
            _, _, entry_id, request_id = key.split(".")
            for gone in (f"{_RECEIVER}{entry_id}.{request_id}", _ANSWER + request_id, key):
                await self._store.delete(space, gone)
        return len(beyond)

    # Findings

    async def begin(self, tenant: str, wrong: WrongAnswer) -> None:
        """Record a finding for a tenant's receivers, so that another process can go on with it."""
        value = _findings.encode(wrong)
        await self._store.put(_noticed(tenant), _OPEN + wrong.entry_id, value, ttl_s=self._retention_s)
        await self._store.put(_received(tenant), _FINDING + wrong.entry_id, value, ttl_s=self._retention_s)

    async def settle(self, tenant: str, wrong: WrongAnswer) -> tuple[RecallNotice, ...]:
        """Add a notice for each receiver that has none; return those that this call added."""
        space, prefix = _received(tenant), f"{_RECEIVER}{wrong.entry_id}."
        found: list[tuple[str, ReceivedAnswer, int]] = []
        async for key in self._keys(space, prefix):
            entry = await self._store.get(space, _ANSWER + key.removeprefix(prefix))
            answer = None if entry is None else _answers.decode(entry.value)
            if entry is not None and answer is not None and _concerns(wrong, answer):
                found.append((key, answer, entry.version))
        if not found:
            return ()
        added = await self._append(tenant, wrong, [answer for _, answer, _ in found if not answer.is_recalled])
        for key, answer, version in found:
            ttl_s = answer.served_at + self._retention_s - self._wall()
            if not answer.is_recalled and ttl_s > 0.0:
                marked = _answers.encode(msgspec.structs.replace(answer, is_recalled=True))
                await self._store.put(space, _ANSWER + answer.request_id, marked, ttl_s=ttl_s, expect=version)
            await self._store.delete(space, key)
        return added

    async def open_findings(self, tenant: str) -> list[WrongAnswer]:
        """Return the findings whose receivers may not all have their notice."""
        space = _noticed(tenant)
        found = [await self._store.get(space, key) async for key in self._keys(space, _OPEN)]
        decoded = [_findings.decode(entry.value) for entry in found if entry is not None]
        return [wrong for wrong in decoded if wrong is not None]

    async def close(self, tenant: str, wrong: WrongAnswer) -> None:
        """Record that all receivers have their notice."""
        await self._store.delete(_noticed(tenant), _OPEN + wrong.entry_id)

    # Notices

    async def notices(self, tenant: str) -> tuple[RecallNotice, ...]:
        """Return the notices of a tenant, oldest first, without those past their time."""
        found, _ = await self._read_notices(tenant)
        return self._current(found)

    async def _append(
        self, tenant: str, wrong: WrongAnswer, answers: Sequence[ReceivedAnswer]
    ) -> tuple[RecallNotice, ...]:
        while True:
            found, version = await self._read_notices(tenant)
            known = {notice.request_id for notice in found}
            missing = [answer for answer in answers if answer.request_id not in known]
            if not missing:
                return ()
            last = found[-1].position if found else 0
            first = max(last + 1, int(self._wall() * 1000))  # also above those of a list that is lost or expired
            missing.sort(key=lambda answer: (answer.served_at, answer.request_id))
            added = tuple(notice_of(answer, wrong, first + number) for number, answer in enumerate(missing))
            value = _lists.encode(NoticeList((*self._current(found), *added)[-self._max_answers :]))
            written = await self._store.put(_noticed(tenant), _NOTICES, value, ttl_s=self._retention_s, expect=version)
            if written is not None:
                return added

    async def _read_notices(self, tenant: str) -> tuple[tuple[RecallNotice, ...], int]:
        entry = await self._store.get(_noticed(tenant), _NOTICES)
        if entry is None:
            return (), 0
        is_long = len(entry.value) > _LONG_BYTES
        found = await asyncio.to_thread(_lists.decode, entry.value) if is_long else _lists.decode(entry.value)
        return (() if found is None else found.notices), entry.version

    def _current(self, notices: Sequence[RecallNotice]) -> tuple[RecallNotice, ...]:
        since = self._wall() - self._retention_s
        return tuple(notice for notice in notices if notice.recalled_at > since)

    # Deliveries

    async def version(self, tenant: str) -> int:
        """Return a number that grows with every change of a tenant's notices, findings or deliveries."""
        return (await self._store.changes(_noticed(tenant))).cursor

    async def delivery(self, tenant: str) -> tuple[DeliveryState, int]:
        """Return the state of a tenant's webhook, and its version for `put_delivery`."""
        entry = await self._store.get(_noticed(tenant), _DELIVERY)
        state = None if entry is None else _states.decode(entry.value)
        return state or DeliveryState(), 0 if entry is None else entry.version

    async def put_delivery(self, tenant: str, state: DeliveryState, *, expect: int) -> int | None:
        """Write the state over that version; return the new one, None when another process has written."""
        value = _states.encode(state)
        return await self._store.put(_noticed(tenant), _DELIVERY, value, ttl_s=self._retention_s, expect=expect)

    async def _keys(self, space: str, prefix: str) -> AsyncIterator[str]:
        """Iterate over the keys that begin with `prefix`, in the order of their bytes."""
        after = prefix
        while True:
            page = await self._store.keys(space, after=after, limit=_PAGE)
            for key in page:
                if not key.startswith(prefix):
                    return
                yield key
            if len(page) < _PAGE:
                return
            after = page[-1]


def _received(tenant: str) -> str:
    return f"recalls.received.{tenant}"


def _noticed(tenant: str) -> str:
    return f"recalls.notices.{tenant}"


def _concerns(wrong: WrongAnswer, answer: ReceivedAnswer) -> bool:
    return answer.served_at <= wrong.at + LATE_S

"""RecallDelivery: sends recall notices to webhooks, from one process among all that share the store.

A notice is sent until its receiver takes it: at least once, and once as long as no process is lost between the
receiver's answer and the record of it. Its id is the same every time. Tenants do not wait for each other: each has a
delivery of its own. While a receiver fails, its tenant's pauses double. A notice whose receiver still fails
`give_up_s` after the recall is given up, and stays readable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, Literal

from gateway.recalls.notice import RecallNotice
from gateway.recalls.recall_store import LATE_S, RecallStore
from gateway.recalls.recalls import Recalls
from gateway.recalls.store_lease import StoreLease
from gateway.recalls.webhook import ATTEMPT_S, RecallWebhook
from gateway.store.base import StoreUnavailable
from gateway.util.bounded_dict import Recent
from gateway.util.doubling_pauses import DoublingPauses
from gateway.util.next_set import until_set_again

TICK_S: Final = 1.0
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 600.0
RESETTLE_S: Final = 30.0
"""Time between two checks for findings that another process did not finish."""
_SHARE_S: Final = 5.0
"""Time after which a delivery ends, so that another tenant's can begin."""
_MAX_AT_ONCE: Final = 16
"""Deliveries at the same time."""
_MAX_SENT: Final = 10_000

Post = Callable[[RecallWebhook, RecallNotice], Awaitable[str | None]]
"""Sender of one notice; returns None when it was taken, else the failure."""

DeliveryEnd = Literal["delivered", "failed", "given_up"]
"""End of an attempt; a metric label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRules:
    """Sender and receivers of notices."""

    post: Post
    webhooks: Callable[[], Mapping[str, RecallWebhook]]
    """Webhooks by tenant."""
    give_up_s: float
    """Time from a recall after which a failed notice is not sent again."""
    note_end: Callable[[RecallNotice, str, DeliveryEnd, str], None]
    """Takes a notice, its tenant, the end of an attempt, and the failure."""


@dataclass(slots=True)
class _Receiver:
    """State of one webhook in this process."""

    pauses: DoublingPauses = field(default_factory=lambda: DoublingPauses(FIRST_PAUSE_S, LONGEST_PAUSE_S))
    not_before: float = 0.0
    begun_at: float = 0.0
    """Time at which its last delivery began."""
    idle_at: int | None = None
    """Version of the tenant's notices at which nothing was left to send."""


class RecallDelivery:
    """Deliveries of one process; `run` them, and `aclose` before the task is cancelled."""

    def __init__(
        self,
        recalls: Recalls,
        store: RecallStore,
        lease: StoreLease,
        rules: DeliveryRules,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """Set up the deliveries; the process that holds `lease` sends."""
        self._recalls = recalls
        self._store = store
        self._lease = lease
        self._rules = rules
        self._clock = clock
        self._wall = wall
        self._receivers: dict[str, _Receiver] = {}
        self._sent: Recent[str, None] = Recent(_MAX_SENT)
        """Notices that a receiver took, in case the store cannot record that at once."""
        self._resettle_at = 0.0
        self._under_way: dict[str, asyncio.Task[None]] = {}
        """Deliveries by tenant."""
        self._is_closing = False
        self._has_news = asyncio.Event()

    def wake(self) -> None:
        """Send soon, because there is a new notice."""
        self._has_news.set()

    async def run(self) -> None:
        """Send what waits until cancelled."""
        await self._recalls.is_wanted.wait()
        while not self._is_closing:
            with suppress(StoreUnavailable):  # its observer has the error
                await self._begin_due()
            await until_set_again(self._has_news, TICK_S)

    async def step(self) -> None:
        """Send what is due, if this process holds the lease. Raises StoreUnavailable."""
        await self._begin_due()
        await asyncio.gather(*self._under_way.values())

    async def aclose(self) -> None:
        """Finish the attempts under way, and let another process send."""
        self._is_closing = True
        self._has_news.set()
        if self._under_way:
            _, late = await asyncio.wait(self._under_way.values(), timeout=ATTEMPT_S + TICK_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._lease.release()

    async def _begin_due(self) -> None:
        """Begin the deliveries that are due, as far as there is room for them. Raises StoreUnavailable."""
        if self._is_closing or not await self._lease.hold():
            return
        if self._clock() >= self._resettle_at:
            await self._resettle(self._recalls.tenants)
            self._resettle_at = self._clock() + RESETTLE_S
        webhooks = self._rules.webhooks()
        for gone in self._receivers.keys() - webhooks.keys():
            del self._receivers[gone]
        due = []
        for tenant in webhooks.keys() - self._under_way.keys():
            receiver = self._receivers.setdefault(tenant, _Receiver())
            if self._clock() >= receiver.not_before:
                due.append((receiver.begun_at, tenant, receiver))
        # Those that waited longest begin, so that slow receivers do not use all the room.
        for _, tenant, receiver in sorted(due, key=itemgetter(0, 1))[: _MAX_AT_ONCE - len(self._under_way)]:
            receiver.begun_at = self._clock()
            delivery = self._run_delivery(tenant, webhooks[tenant], receiver)
            self._under_way[tenant] = asyncio.create_task(delivery, name=f"recalls {tenant}")

    async def _run_delivery(self, tenant: str, webhook: RecallWebhook, receiver: _Receiver) -> None:
        try:
            with suppress(StoreUnavailable):  # its observer has the error
                await self._deliver(tenant, webhook, receiver)
        finally:
            del self._under_way[tenant]

    async def _resettle(self, tenants: Iterable[str]) -> None:
        """Go on with findings that a lost process left, and close those that are old enough."""
        for tenant in tenants:
            for wrong in await self._store.open_findings(tenant):
                await self._recalls.settle(tenant, wrong)
                if self._wall() > wrong.at + LATE_S:
                    await self._store.close(tenant, wrong)

    async def _deliver(self, tenant: str, webhook: RecallWebhook, receiver: _Receiver) -> None:
        version = await self._store.version(tenant)
        if version == receiver.idle_at:
            return
        state, state_version = await self._store.delivery(tenant)
        waiting = state.waiting(await self._store.notices(tenant))
        if not waiting:
            receiver.idle_at = version
        ends_at = self._clock() + _SHARE_S
        for notice in waiting:
            if self._is_closing or self._clock() >= ends_at or not await self._lease.hold():
                return
            failure = None if notice.id in self._sent else await self._rules.post(webhook, notice)
            is_old = self._wall() >= notice.recalled_at + self._rules.give_up_s
            if failure is None:
                self._sent[notice.id] = None
            state = state.after(notice, is_open=failure is not None and not is_old)
            written = await self._store.put_delivery(tenant, state, expect=state_version)
            if written is None:  # another process sends by now
                return
            state_version = written
            self._rules.note_end(notice, tenant, _end_of(failure, is_old=is_old), failure or "")
            if failure is not None:
                receiver.not_before = self._clock() + receiver.pauses.failed()
                return
            receiver.pauses.reset()


def _end_of(failure: str | None, *, is_old: bool) -> DeliveryEnd:
    if failure is None:
        return "delivered"
    return "given_up" if is_old else "failed"

"""Recalls: takes served similar answers and findings from the request path, and writes them in the background."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from gateway.access.api_keys import DEV_TENANT
from gateway.recalls.notice import RecallNotice, ReceivedAnswer, WrongAnswer
from gateway.recalls.recall_store import RecallStore
from gateway.store.base import StoreUnavailable
from gateway.util.fair_bounded_dict import FairRecent
from gateway.util.next_set import until_set_again
from routing_policies.policy.document import Policy

_SEMANTIC: Final = "exact_then_semantic"
TICK_S: Final = 0.5
"""Time after which a served answer is written."""
MAX_WAITING: Final = 10_000
"""Served answers, and findings, that wait for the store; beyond it, the tenant with the most loses its oldest."""
_BATCH: Final = 32
_TRIM_SHARE: Final = 0.01
"""Answers of a tenant after which this process looks at the bound again, as a share of the bound."""
_MIN_TRIM: Final = 100
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")

ReceiverEnd = Literal["stored", "dropped"]
"""End of a served answer that was to be remembered; a metric label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallSink:
    """Callbacks that receive what was recorded."""

    count_receiver: Callable[[ReceiverEnd], None]
    recalled: Callable[[str, RecallNotice], None]
    """Takes a tenant and each notice that this process added."""


class Recalls:
    """Receivers and findings of one process. `note_served` and `note_wrong` never wait and never fail."""

    def __init__(self, store: RecallStore, *, max_answers: int, sink: RecallSink) -> None:
        """Set up; `max_answers` is the store's bound for each tenant."""
        self._store = store
        self._sink = sink
        self._trim_every = max(_MIN_TRIM, int(max_answers * _TRIM_SHARE))
        self._served: FairRecent[str, ReceivedAnswer] = FairRecent(MAX_WAITING)
        self._wrong: FairRecent[str, WrongAnswer] = FairRecent(MAX_WAITING)
        self._num_untrimmed: Counter[str] = Counter()
        self._tenants: tuple[str, ...] = (DEV_TENANT,)
        self._shared_routes: frozenset[str] = frozenset()
        self._has_findings = asyncio.Event()
        self.is_wanted = asyncio.Event()
        """Set from the first policy on that has a route with similar answers, or a webhook."""

    @property
    def tenants(self) -> tuple[str, ...]:
        """Return the tenants of the policy in force."""
        return self._tenants

    def configure(self, policy: Policy) -> None:
        """Adopt the tenants of a policy, and the routes whose entries several of them may receive."""
        self._tenants = (DEV_TENANT, *(tenant.id for tenant in policy.tenants if tenant.id != DEV_TENANT))
        self._shared_routes = frozenset(route.id for route in policy.routes if route.cache.scope == "shared")
        if any(route.cache.mode == _SEMANTIC for route in policy.routes) or any(
            tenant.recall_webhook is not None for tenant in policy.tenants
        ):
            self.is_wanted.set()

    def note_served(self, answer: ReceivedAnswer) -> None:
        """Remember that a request is served a similar answer."""
        for _ in self._served.put(answer.request_id, answer, answer.tenant):
            self._sink.count_receiver("dropped")

    def note_wrong(self, wrong: WrongAnswer) -> None:
        """Recall the answers from an entry that was served wrongly."""
        key = f"{wrong.entry_id}.{wrong.request_id}.{wrong.reason}"
        if key not in self._wrong:
            self._wrong.put(key, wrong, wrong.tenant)
        self._has_findings.set()

    async def received(self, request_id: str, tenant: str) -> ReceivedAnswer | None:
        """Return the similar answer that a request of this tenant received, served by any process at any time.

        Returns:
            None where none is remembered, or the store does not answer.
        """
        if not _REQUEST_ID.fullmatch(request_id):
            return None
        waiting = self._served.get(request_id)
        if waiting is not None:
            return waiting if waiting.tenant == tenant else None
        with suppress(StoreUnavailable):  # its observer has the error
            return await self._store.find_answer(tenant, request_id)
        return None

    async def run(self) -> None:
        """Write what waits until cancelled."""
        await self.is_wanted.wait()
        while True:
            with suppress(StoreUnavailable):  # its observer has the error; what waits is written later
                await self.write_pending()
            await until_set_again(self._has_findings, TICK_S)

    async def write_pending(self) -> None:
        """Write the served answers that wait, then the findings. Raises StoreUnavailable."""
        while len(self._served):
            await self._write_answers([answer for answer, _ in zip(self._served.values(), range(_BATCH), strict=False)])
        while len(self._wrong):
            for key, wrong in self._wrong.oldest_of_each():
                for tenant in self._concerned(wrong):
                    await self._store.begin(tenant, wrong)
                    await self.settle(tenant, wrong)
                if self._wrong.get(key) is wrong:
                    self._wrong.pop(key)

    async def settle(self, tenant: str, wrong: WrongAnswer) -> None:
        """Add the notices of a finding that are missing. Raises StoreUnavailable."""
        for notice in await self._store.settle(tenant, wrong):
            self._sink.recalled(tenant, notice)

    async def flush(self) -> None:
        """Write what still waits, for a moment; call it when `run` has ended."""
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(2.0 * TICK_S):
                await self.write_pending()

    async def _write_answers(self, answers: list[ReceivedAnswer]) -> None:
        found = await asyncio.gather(*map(self._write_answer, answers), return_exceptions=True)
        for error in found:
            if error is not None:
                raise error
        for tenant in {answer.tenant for answer in answers}:
            if self._num_untrimmed[tenant] >= self._trim_every:
                await self._store.trim(tenant)
                del self._num_untrimmed[tenant]

    async def _write_answer(self, answer: ReceivedAnswer) -> None:
        wrong = await self._store.add_answer(answer)
        if wrong is not None:
            await self.settle(answer.tenant, wrong)
        if self._served.get(answer.request_id) is answer:
            self._served.pop(answer.request_id)
            self._num_untrimmed[answer.tenant] += 1
            self._sink.count_receiver("stored")

    def _concerned(self, wrong: WrongAnswer) -> tuple[str, ...]:
        """Return the tenants that may have received the entry: all of them on a route whose entries are shared.

        The feedback of one tenant recalls answers of that tenant alone.
        """
        if wrong.reason == "feedback" or wrong.route not in self._shared_routes:
            return (wrong.tenant,)
        return tuple(dict.fromkeys((wrong.tenant, *self._tenants)))

"""Quotas: every tenant with limits, and the background work on their usage."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from gateway.admission.quotas.quota_rules import Tariff, rules_of
from gateway.admission.quotas.reservation import Reservation
from gateway.admission.quotas.tenant_quota import TenantQuota, Wall
from gateway.store.base import Store
from gateway.telemetry.records.record import HandedOver, RequestPhase, RequestRecord
from gateway.timeline import Clock, Outcome
from routing_policies.estimation.estimators import Price
from routing_policies.policy.document import Policy

TICK_S: Final = 0.1
_NOT_STARTED: Final = frozenset({RequestPhase.QUEUED, RequestPhase.CONNECTING})


class Quotas:
    """The limited tenants of this process and their usage."""

    def __init__(
        self,
        store: Store,
        *,
        holder: str,
        clock: Clock,
        wall: Wall,
        report: Callable[[BaseException], None],
        count_refusal: Callable[[str, str], None] = lambda tenant, limit: None,
    ) -> None:
        """Create the quotas.

        `holder` names this process among all that share the store; `report` gets events that should never happen.
        `count_refusal` gets the tenant and the limit of each refusal.
        """
        self._store = store
        self._holder = holder
        self._clock = clock
        self._wall = wall
        self._report = report
        self.count_refusal = count_refusal
        self.by_tenant: dict[str, TenantQuota] = {}
        """Quotas by tenant, limited ones only; a tenant without limits costs one lookup."""
        self._tariff = Tariff(())
        self._numbers = itertools.count(1)

    def configure(self, policy: Policy) -> None:
        """Take over a policy revision; what was used stays used."""
        before = dict(self.by_tenant)
        self.by_tenant.clear()
        self._tariff = Tariff(policy.deployments)
        for tenant in policy.tenants:
            rules = rules_of(tenant.limits)
            if rules is None:
                continue
            retained = before.get(tenant.id)
            if retained is None:
                retained = TenantQuota(
                    tenant.id,
                    rules,
                    store=self._store,
                    holder=self._holder,
                    clock=self._clock,
                    wall=self._wall,
                    report=self._report,
                    numbers=self._numbers,
                )
            else:
                retained.configure(rules)
            self.by_tenant[tenant.id] = retained

    def price_of(self, price: Price, deployments: Iterable[str]) -> int:
        """Return a request's cost in billionths of the currency at the dearest of these deployments."""
        return self._tariff.nano(deployments, price.prompt_tokens, price.output_tokens)

    def settle(self, reservation: Reservation, record: RequestRecord, price: Price | None) -> None:
        """End the reservation of a request that is over, by what is known of what it used."""
        outcome, usage = record.outcome, record.usage
        if usage is not None:
            used = (usage.prompt_tokens, usage.completion_tokens)
        elif outcome is Outcome.COMPLETED:
            reservation.settle(reservation.tokens, reservation.nano + self._nano_left(record))
            return
        elif record.num_chunks and price is not None:
            used = (price.prompt_tokens, record.num_chunks)  # broken off: about a token came with each chunk
        elif record.handed_over is None and (
            outcome is Outcome.SHED or record.attempts == 0 or record.place in _NOT_STARTED
        ):
            reservation.cancel()
            return
        elif outcome is Outcome.CANCELLED and price is not None:
            used = (price.prompt_tokens, 0)
        else:
            used = (0, 0)
        if outcome is Outcome.CACHED:
            used = (0, 0)
        prompt_tokens, output_tokens = used
        tokens, nano = (
            prompt_tokens + output_tokens,
            self._tariff.nano((record.deployment,), prompt_tokens, output_tokens),
        )
        if record.handed_over is not None:
            tokens, nano = tokens + _tokens_left(record.handed_over), nano + self._nano_left(record)
        reservation.settle(tokens, nano)

    def _nano_left(self, record: RequestRecord) -> int:
        """Return the cost of the answer that a cascade dropped in favour of another."""
        left = record.handed_over
        if left is None:
            return 0
        return self._tariff.nano((left.deployment,), left.usage.prompt_tokens, left.usage.completion_tokens)

    def __iter__(self) -> Iterator[TenantQuota]:
        return iter(tuple(self.by_tenant.values()))

    async def run(self) -> None:
        """Send changes to the store, as long as this process lives; ends by cancellation."""
        while True:
            await asyncio.sleep(TICK_S)
            now = self._clock()
            for quota in self:
                await quota.flush(now)

    async def give_all_back(self) -> None:
        """Return unused units and permits to the other processes, before this one ends."""
        await asyncio.gather(*(quota.give_all_back() for quota in self))


def _tokens_left(left: HandedOver) -> int:
    return left.usage.prompt_tokens + left.usage.completion_tokens

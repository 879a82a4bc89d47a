"""A store's `exchange` in memory, on a clock the test moves, with faults the test sets."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from gateway.admission.quotas.quotas import Quotas
from gateway.store.base import Exchanged, Hold, StoreLoss, StoreUnavailable
from gateway.store.meter import Draw, draw_units, even_share
from routing_policies.loading import load_policy
from routing_policies.policy.document import Policy

MIDDAY = 1_750_000_000.0
"""Seconds since 1970."""


class Time:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        return MIDDAY + self.now


class SharedMeters:
    """What several gateway processes share; `loss` makes every exchange fail, done or not done."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.counts: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        self._holds: dict[tuple[str, str], dict[str, tuple[int, float]]] = defaultdict(dict)
        self.loss: StoreUnavailable | None = None
        self.loss_after: StoreUnavailable | None = None
        """The loss that begins with the next exchange that is answered."""
        self.is_done_when_lost = False
        self.num_exchanges = 0
        self._last: dict[tuple[str, str], tuple[int, Exchanged]] = {}

    async def exchange(
        self, space: str, holder: str, draws: Sequence[Draw], hold: Hold | None = None, *, number: int = 0
    ) -> Exchanged:
        self.num_exchanges += 1
        if self.loss is None or self.is_done_when_lost:
            last_number, done = self._last.get((space, holder), (0, None))
            if done is None or last_number < number:
                done = self._exchange(space, holder, draws, hold)
                self._last[space, holder] = number, done
        if self.loss is not None:
            raise self.loss
        assert done is not None
        self.loss, self.loss_after = self.loss_after, None
        return done

    def used(self, meter: str, tenant: str = "support") -> int:
        """Units counted now."""
        return sum(self.counts[f"quota.{tenant}", meter].values())

    def held(self, tenant: str = "support") -> int:
        """Concurrent units that are held."""
        return sum(units for units, _ in self._holds[f"quota.{tenant}", "max_in_flight"].values())

    def _exchange(self, space: str, holder: str, draws: Sequence[Draw], hold: Hold | None) -> Exchanged:
        now = self._time.wall()
        held, holders = (0, 1) if hold is None else self._keep(space, holder, hold, now)
        grants = tuple(draw_units(self.counts[space, request.meter.name], request, now, holders) for request in draws)
        return Exchanged(now, grants, held, holders)

    def _keep(self, space: str, holder: str, hold: Hold, now: float) -> tuple[int, int]:
        others = self._holds[space, hold.name]
        for name in [name for name, (_, until) in others.items() if until <= now or name == holder]:
            del others[name]
        free = hold.limit - sum(units for units, _ in others.values())
        units = max(min(hold.units, free), 0)
        units += even_share(free - units, hold.spare, 0, len(others) + 1)
        others[holder] = (units, now + hold.ttl_s)
        return units, len(others)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"quotas need nothing but exchange, and asked for {name}")


LOST = StoreUnavailable(StoreLoss.DOWN, "not there", was_sent=False)
LATE = StoreUnavailable(StoreLoss.SLOW, "too late", was_sent=True)


def limited(limits: str, *, prices: str = "") -> Policy:
    """A policy whose tenant `support` has these limits, as YAML in flow style."""
    price = f", cost_per_mtok: {prices}" if prices else ""
    return load_policy(
        "schema_version: 1\n"
        f'deployments: [{{id: small, url: "unix:/s.sock", model: m{price}}}]\n'
        f"tenants:\n  - {{id: support, limits: {limits}}}\n  - {{id: free}}\n",
        source="policy.yaml",
    )


class Replica:
    """One gateway process' quotas."""

    def __init__(self, shared: SharedMeters, time: Time, rules: Policy, name: str = "a") -> None:
        self.faults: list[BaseException] = []
        self.quotas = Quotas(shared, holder=name, clock=time, wall=time.wall, report=self.faults.append)
        self.quotas.configure(rules)
        self._time = time

    @property
    def quota(self) -> Any:
        """Of the tenant `support`."""
        found = self.quotas.by_tenant.get("support")
        assert found is not None
        return found

    async def routing_request(self, tokens: int = 0, nano: int = 0) -> Any:
        """A reservation; raises QuotaExceeded."""
        return self.quota.try_reserve(tokens, nano, self._time()) or await self.quota.reserve(
            tokens, nano, self._time()
        )

    async def rest(self) -> None:
        """Some seconds in which nobody calls."""
        for _ in range(40):
            self._time.now += 0.26
            await asyncio.sleep(0)
            await self.flush()

    async def flush(self) -> None:
        """What the background task does at intervals."""
        for quota in self.quotas:
            await quota.flush(self._time())

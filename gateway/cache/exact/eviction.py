"""Eviction: which entry goes when the cache is full, fair to tenants and to what was hit.

Two classes, as in S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023): an entry is
*unproven* until its first hit. Unproven entries may take a tenth of their tenant's even share when room is short; what
is beyond that goes first, so one-off answers never displace entries with hits. An evicted unproven entry is remembered
for a while, and is proven when it comes again.

Inside a class the order is GreedyDual-Size-Frequency (Cherkasova, HP Labs, 1998): an entry is worth the clock of its
last use plus its hits times what one hit saves, per byte; the clock moves to the worth of whatever went last, so
that old entries age against new ones. A hit saves a whole exchange with a deployment, and besides its tokens.

Among proven entries the tenant that holds the most bytes loses one first. Shares bind only when everything is full: a
lone tenant may use all of it.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Final

from gateway.util.bounded_dict import Recent

HIT_TOKENS: Final = 1000
"""Tokens that a hit saves beside the response's own: queueing, reading the prompt, the first token."""
UNPROVEN_PARTS: Final = 10
"""The divisor of a tenant's even share that unproven entries may fill."""
MAX_REMEMBERED: Final = 1000
"""Evicted entries that a tenant may prove by repeating the request."""
_TENANTS_PER_LOOK: Final = 16
"""Tenants for each victim that is taken without comparing all tenants again."""
_SLACK: Final = 4
"""Stale places in a heap per entry before it is rebuilt."""


class Ranked:
    """One cache entry as eviction sees it."""

    __slots__ = ("cost_tokens", "exact", "is_proven", "num_bytes", "num_hits", "tenant", "worth")

    def __init__(self, exact: bytes, *, tenant: str, num_bytes: int, cost_tokens: int) -> None:
        self.exact = exact
        self.tenant = tenant
        self.num_bytes = num_bytes
        self.cost_tokens = cost_tokens
        self.num_hits = 0
        self.is_proven = False
        self.worth = 0.0


class _Class:
    """One tenant's entries of one class, the least worthy first."""

    __slots__ = ("_heap", "_order", "clock", "held", "num_bytes")

    def __init__(self) -> None:
        self.held: dict[bytes, Ranked] = {}
        self.num_bytes = 0
        self.clock = 0.0
        self._heap: list[tuple[float, int, bytes]] = []
        self._order = count()

    def add(self, ranked: Ranked) -> None:
        self.held[ranked.exact] = ranked
        self.num_bytes += ranked.num_bytes
        self.place(ranked)

    def remove(self, ranked: Ranked) -> None:
        del self.held[ranked.exact]
        self.num_bytes -= ranked.num_bytes

    def place(self, ranked: Ranked) -> None:
        """Rank an entry that is new or was used."""
        saved = max(ranked.num_hits, 1) * (HIT_TOKENS + ranked.cost_tokens)
        ranked.worth = self.clock + saved / ranked.num_bytes
        heapq.heappush(self._heap, (ranked.worth, next(self._order), ranked.exact))
        if len(self._heap) > _SLACK * len(self.held) + 64:
            self._heap = [(each.worth, next(self._order), exact) for exact, each in self.held.items()]
            heapq.heapify(self._heap)

    def least(self) -> Ranked:
        """Return the least worthy entry, which stays."""
        while True:
            worth, _, exact = self._heap[0]
            ranked = self.held.get(exact)
            if ranked is not None and ranked.worth == worth:
                return ranked
            heapq.heappop(self._heap)

    def check_integrity(self) -> None:
        assert self.num_bytes == sum(each.num_bytes for each in self.held.values())
        placed = {(worth, exact) for worth, _, exact in self._heap}
        assert all((each.worth, exact) in placed for exact, each in self.held.items()), "an entry has no place"


class _Tenant:
    """One tenant's entries."""

    __slots__ = ("proven", "remembered", "unproven")

    def __init__(self) -> None:
        self.proven = _Class()
        self.unproven = _Class()
        self.remembered: Recent[bytes, None] = Recent(MAX_REMEMBERED)

    @property
    def num_bytes(self) -> int:
        return self.proven.num_bytes + self.unproven.num_bytes


class Eviction:
    """Entries of all tenants in a room of `max_bytes`. Single-threaded; the owner removes what `victim` names."""

    __slots__ = ("_chosen", "_num_left", "_tenants", "max_bytes", "num_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._tenants: dict[str, _Tenant] = {}
        self._chosen: _Class | None = None
        self._num_left = 0
        """Victims that may still come from the chosen class; comparing all tenants for each takes too long."""
        self.num_bytes = 0

    def used_by(self, tenant: str) -> int:
        """Return the bytes of one tenant's entries."""
        found = self._tenants.get(tenant)
        return 0 if found is None else found.num_bytes

    def add(self, ranked: Ranked) -> None:
        """Add a new entry."""
        self._chosen = None
        tenant = self._tenants.get(ranked.tenant)
        if tenant is None:
            tenant = self._tenants[ranked.tenant] = _Tenant()
        if ranked.exact in tenant.remembered:
            del tenant.remembered[ranked.exact]
            ranked.is_proven, ranked.num_hits = True, 1
        self.num_bytes += ranked.num_bytes
        (tenant.proven if ranked.is_proven else tenant.unproven).add(ranked)

    def hit(self, ranked: Ranked, num_hits: int = 1) -> None:
        """Count uses of an entry."""
        tenant = self._tenants[ranked.tenant]
        ranked.num_hits += num_hits
        if ranked.is_proven:
            tenant.proven.place(ranked)
        else:
            tenant.unproven.remove(ranked)
            ranked.is_proven = True
            tenant.proven.add(ranked)

    def remove(self, ranked: Ranked, *, is_victim: bool = False) -> None:
        """Remove an entry; a victim is remembered, and proven when it comes again."""
        tenant = self._tenants[ranked.tenant]
        part = tenant.proven if ranked.is_proven else tenant.unproven
        part.remove(ranked)
        self.num_bytes -= ranked.num_bytes
        if is_victim:
            part.clock = max(part.clock, ranked.worth)
            tenant.remembered[ranked.exact] = None
        elif not tenant.num_bytes:
            del self._tenants[ranked.tenant]

    def victim(self) -> Ranked | None:
        """Return the entry to evict first, or None when there is none."""
        if self._chosen is None or not self._chosen.held or self._num_left <= 0:
            self._chosen = self._choose()
            self._num_left = len(self._tenants) // _TENANTS_PER_LOOK
        self._num_left -= 1
        return None if self._chosen is None else self._chosen.least()

    def victim_for(self, tenant: str) -> Ranked | None:
        """Return the entry to evict for a new one of this tenant, where hits of other processes are unknown.

        A tenant above its even share loses one, the largest first; otherwise the new entry's own tenant does.
        """
        tenants = self._tenants.values()
        found = max(tenants, key=lambda each: each.num_bytes, default=None)
        if found is None or not self.num_bytes:
            return None
        if found.num_bytes * sum(1 for each in tenants if each.num_bytes) <= self.max_bytes:
            found = self._tenants[tenant]
        return (found.unproven if found.unproven.held else found.proven).least()

    def _choose(self) -> _Class | None:
        tenants = self._tenants.values()
        most = max(tenants, key=lambda tenant: tenant.unproven.num_bytes, default=None)
        if most is None or not self.num_bytes:
            return None
        num_tenants = sum(1 for tenant in tenants if tenant.num_bytes)
        if most.unproven.num_bytes * UNPROVEN_PARTS * num_tenants > self.max_bytes:
            return most.unproven
        largest = max(tenants, key=lambda tenant: tenant.num_bytes)
        return largest.proven if largest.proven.held else largest.unproven

    def check_integrity(self) -> None:
        """Raise AssertionError when the counts are wrong."""
        assert self.num_bytes == sum(tenant.num_bytes for tenant in self._tenants.values())
        for tenant in self._tenants.values():
            for part, is_proven in ((tenant.proven, True), (tenant.unproven, False)):
                part.check_integrity()
                assert all(each.is_proven is is_proven for each in part.held.values())

"""FairQueue: who in one lane is next.

Between tenants: deficit round robin, counted in tokens. A tenant that had nothing waiting goes before those that have
a backlog, for one quantum, so that whoever asks rarely hardly notices whoever asks all the time. A tenant that leaves
and comes back gains nothing: it keeps its place among the others until its debt is paid.

Within a tenant: the earliest due first, which is the order of arrival where all have one target; or, when told that
time no longer suffices for all, the newest first, which still has some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from gateway.admission.waiter import Waiter

MAX_FLOWS_SUMMED: Final = 64
"""Backlogs of more tenants than this are bounded, not added up, when a wait is forecast."""
_QUANTUM_SHARE: Final = 1 / 16
_MIN_STALE: Final = 32


class _Flow:
    """What waits of one tenant. Two orders over the same waiters; those that left are skipped when met."""

    __slots__ = ("_by_age", "_by_due", "_num_pushed", "deficit", "is_new", "num_waiting", "tenant", "tokens")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.deficit = 0.0
        """Tokens it may still be served in this round; below 0 after a request larger than what was left."""
        self.is_new = True
        self.num_waiting = 0
        self.tokens = 0
        self._by_due: list[tuple[float, int, Waiter]] = []
        self._by_age: list[Waiter] = []
        self._num_pushed = 0

    def push(self, waiter: Waiter) -> None:
        waiter.is_waiting = True
        self.num_waiting += 1
        self.tokens += waiter.tokens
        self._num_pushed += 1
        heappush(self._by_due, (waiter.due_at, self._num_pushed, waiter))
        self._by_age.append(waiter)

    def pop(self, *, newest_first: bool) -> Waiter:
        assert self.num_waiting > 0
        while True:
            waiter = self._by_age.pop() if newest_first else heappop(self._by_due)[2]
            if waiter.is_waiting:
                self.remove(waiter)
                return waiter

    def newest(self) -> Waiter:
        """The last that came, a client's retry before anything else."""
        assert self.num_waiting > 0
        while not self._by_age[-1].is_waiting:
            self._by_age.pop()
        retries = (waiter for waiter in reversed(self._by_age) if waiter.is_waiting and waiter.claim.is_retry)
        return next(retries, self._by_age[-1])

    def remove(self, waiter: Waiter) -> None:
        waiter.is_waiting = False
        self.num_waiting -= 1
        self.tokens -= waiter.tokens
        most = 2 * self.num_waiting + _MIN_STALE
        if len(self._by_due) > most:
            self._by_due = [entry for entry in self._by_due if entry[2].is_waiting]
            heapify(self._by_due)
        if len(self._by_age) > most:
            self._by_age = [other for other in self._by_age if other.is_waiting]

    def check_integrity(self) -> None:
        for found in ([entry[2] for entry in self._by_due], self._by_age):
            waiting = [waiter for waiter in found if waiter.is_waiting]
            assert len(waiting) == self.num_waiting
            assert sum(waiter.tokens for waiter in waiting) == self.tokens


class FairQueue:
    """The waiters of one lane at one deployment. It knows no clock and grants nothing by itself."""

    __slots__ = ("_flows", "_new", "_old", "_quantum", "num_waiting", "tokens")

    def __init__(self) -> None:
        self._flows: dict[str, _Flow] = {}
        self._new: deque[_Flow] = deque()
        self._old: deque[_Flow] = deque()
        self._quantum = 0.0
        self.num_waiting = 0
        self.tokens = 0
        """Of all that wait."""

    def push(self, waiter: Waiter) -> None:
        """Let one wait."""
        tokens, tenant = waiter.tokens, waiter.claim.tenant
        self._quantum = self._quantum + _QUANTUM_SHARE * (tokens - self._quantum) if self._quantum else float(tokens)
        flow = self._flows.get(tenant)
        if flow is None:
            flow = self._flows[tenant] = _Flow(tenant)
            flow.deficit = self._quantum
            self._new.append(flow)
        flow.push(waiter)
        self.num_waiting += 1
        self.tokens += tokens

    def pop(self, *, newest_first: bool = False, may_go: Callable[[str], bool] | None = None) -> Waiter | None:
        """The next one, no longer waiting; `may_go` leaves out tenants. None when nobody is left."""
        flow = self._next_flow() if may_go is None else self._next_among(may_go)
        if flow is None:
            return None
        waiter = flow.pop(newest_first=newest_first)
        flow.deficit -= waiter.tokens
        self._left(waiter)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """It no longer waits; nothing happens when it does not."""
        if waiter.is_waiting:
            self._flows[waiter.claim.tenant].remove(waiter)
            self._left(waiter)

    def push_out(self, tenant: str, tokens: int) -> Waiter | None:
        """Make room for `tokens` of `tenant`: the newest of the longest backlog, removed; None when its own would be
        the longest."""
        longest = self._longer_than(tenant, tokens)
        if longest is None:
            return None
        waiter = longest.newest()
        self.remove(waiter)
        return waiter

    def can_push_out(self, tenant: str, tokens: int) -> bool:
        """Whether `push_out` would find somebody."""
        return self._longer_than(tenant, tokens) is not None

    def tokens_ahead(self, tenant: str) -> int:
        """Work that would be served before a newcomer of `tenant`, with fair turns between tenants."""
        own = self._flows.get(tenant)
        if own is None:  # goes before every backlog
            return min(sum(min(flow.tokens, int(self._quantum)) for flow in self._new), self.tokens)
        if len(self._flows) == 1:
            return self.tokens
        reach = own.tokens
        if len(self._flows) > MAX_FLOWS_SUMMED:
            return min(self.tokens, reach * len(self._flows))
        return sum([flow.tokens if flow.tokens < reach else reach for flow in self._flows.values()])

    def num_waiting_of(self, tenant: str) -> int:
        """Requests of one tenant."""
        flow = self._flows.get(tenant)
        return 0 if flow is None else flow.num_waiting

    @property
    def num_tenants(self) -> int:
        """Tenants that wait, or whose turn has not come since they did."""
        return len(self._flows)

    def _longer_than(self, tenant: str, tokens: int) -> _Flow | None:
        longest = max(self._flows.values(), key=_tokens_of, default=None)
        own = self._flows.get(tenant)
        wanted = tokens if own is None else own.tokens + tokens
        return longest if longest is not None and longest is not own and longest.tokens > wanted else None

    def _left(self, waiter: Waiter) -> None:
        self.num_waiting -= 1
        self.tokens -= waiter.tokens
        if self.num_waiting == 0:  # nobody competes any more: no debts
            self._flows.clear()
            self._new.clear()
            self._old.clear()

    def _next_flow(self) -> _Flow | None:
        num_skipped = 0
        while self._new or self._old:
            ring = self._new or self._old
            flow = ring[0]
            if flow.deficit <= 0:
                ring.popleft()
                self._renew(flow)
                num_skipped += 1
                if num_skipped > len(self._flows):
                    self._skip_empty_rounds()
                    num_skipped = 0
            elif flow.num_waiting == 0:
                ring.popleft()
                self._retire(flow)
            else:
                return flow
        return None

    def _renew(self, flow: _Flow) -> None:
        flow.deficit += self._quantum
        flow.is_new = False
        self._old.append(flow)

    def _retire(self, flow: _Flow) -> None:
        """Nothing of it waits. One that was new stays for a round, so that coming back at once gains nothing."""
        if flow.is_new and self._old:
            flow.is_new = False
            self._old.append(flow)
        else:
            del self._flows[flow.tenant]

    def _skip_empty_rounds(self) -> None:
        """All are in debt, which a request far larger than the quantum brings about: pass the rounds at once."""
        least = min(-flow.deficit for flow in self._flows.values())
        rounds = least // self._quantum
        for flow in self._flows.values():
            flow.deficit += rounds * self._quantum

    def _next_among(self, may_go: Callable[[str], bool]) -> _Flow | None:
        """Of the tenants that may go, the next in turn; the others keep their place."""
        for ring in (self._new, self._old):
            for flow in ring:
                if flow.num_waiting and may_go(flow.tenant):
                    return flow
        return None

    def check_integrity(self) -> None:
        """Raises AssertionError when the books contradict each other; for tests and idle moments."""
        flows = self._flows.values()
        assert self.num_waiting == sum(flow.num_waiting for flow in flows)
        assert self.tokens == sum(flow.tokens for flow in flows)
        assert sorted(map(id, flows)) == sorted(map(id, [*self._new, *self._old])), "a tenant is in no ring, or in two"
        assert all(flow.is_new for flow in self._new)
        for flow in flows:
            flow.check_integrity()


def _tokens_of(flow: _Flow) -> int:
    return flow.tokens

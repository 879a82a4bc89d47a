"""FairQueue: order of the requests that wait in one lane.

Between tenants the order is deficit round robin, counted in tokens. A tenant without a backlog precedes those with one,
for one quantum, so heavy tenants hardly delay light ones. A tenant that leaves and returns gains nothing: it keeps its
place among the others until its debt is paid.

Within a tenant the earliest due comes first, which is the order of arrival under one target. When time no longer
suffices for all, the newest comes first, because it still has time. Short and long prompts have separate lines, so one
kind proceeds while the other is held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from gateway.limits.permit import Waiter

MAX_FLOWS_SUMMED: Final = 64
"""Number of tenants beyond which a forecast bounds their backlogs instead of adding them up."""
IsEligible = Callable[[str, bool], bool]
"""Predicate: whether a tenant may start one more request, given its id and True for long prompts."""
_QUANTUM_SHARE: Final = 1 / 16
_MIN_STALE: Final = 32


class _Line:
    """Waiting requests of one tenant and kind, in two orders; entries that left are skipped lazily."""

    __slots__ = ("_by_age", "_by_due", "_num_pushed", "num_waiting")

    def __init__(self) -> None:
        self.num_waiting = 0
        self._by_due: list[tuple[float, int, Waiter]] = []
        self._by_age: list[Waiter] = []
        self._num_pushed = 0

    def push(self, waiter: Waiter) -> None:
        self.num_waiting += 1
        self._num_pushed += 1
        heappush(self._by_due, (waiter.due_at, self._num_pushed, waiter))
        self._by_age.append(waiter)

    def first(self, *, newest_first: bool) -> Waiter:
        """Return the next request without removing it."""
        assert self.num_waiting > 0
        if newest_first:
            while not self._by_age[-1].is_waiting:
                self._by_age.pop()
            return self._by_age[-1]
        while not self._by_due[0][2].is_waiting:
            heappop(self._by_due)
        return self._by_due[0][2]

    def remove(self) -> None:
        """Remove one request that is already marked as not waiting."""
        self.num_waiting -= 1
        most = 2 * self.num_waiting + _MIN_STALE
        if len(self._by_due) > most:
            self._by_due = [entry for entry in self._by_due if entry[2].is_waiting]
            heapify(self._by_due)
        if len(self._by_age) > most:
            self._by_age = [other for other in self._by_age if other.is_waiting]

    def from_newest(self) -> Iterator[Waiter]:
        return (waiter for waiter in reversed(self._by_age) if waiter.is_waiting)

    def check_integrity(self) -> int:
        """Check the invariants and return the tokens of all requests; raises AssertionError."""
        waiting = [entry[2] for entry in self._by_due if entry[2].is_waiting]
        assert len(waiting) == self.num_waiting == len(list(self.from_newest()))
        return sum(waiter.tokens for waiter in waiting)


class _Flow:
    """Waiting requests of one tenant."""

    __slots__ = ("_lines", "deficit", "is_new", "num_waiting", "tenant", "tokens")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.deficit = 0.0
        """Tokens left in this round; below 0 after a request larger than the rest."""
        self.is_new = True
        self.num_waiting = 0
        self.tokens = 0
        self._lines = (_Line(), _Line())
        """Lines of short and of long prompts."""

    def push(self, waiter: Waiter) -> None:
        waiter.is_waiting = True
        self.num_waiting += 1
        self.tokens += waiter.tokens
        self._lines[waiter.is_long].push(waiter)

    def pop(self, *, newest_first: bool, is_eligible: IsEligible | None) -> Waiter | None:
        """Remove and return the next request of the kinds that may go, or None without one."""
        firsts = [
            line.first(newest_first=newest_first)
            for is_long, line in enumerate(self._lines)
            if line.num_waiting and (is_eligible is None or is_eligible(self.tenant, bool(is_long)))
        ]
        if not firsts:
            return None
        found = max(firsts, key=_since) if newest_first else min(firsts, key=_due_at)
        self.remove(found)
        return found

    def newest(self) -> Waiter:
        """Return the latest request, preferring clients' retries."""
        found = [waiter for line in self._lines for waiter in line.from_newest()]
        return max([waiter for waiter in found if waiter.admission_request.is_retry] or found, key=_since)

    def remove(self, waiter: Waiter) -> None:
        waiter.is_waiting = False
        self.num_waiting -= 1
        self.tokens -= waiter.tokens
        self._lines[waiter.is_long].remove()

    def check_integrity(self) -> None:
        assert self.num_waiting == sum(line.num_waiting for line in self._lines)
        assert self.tokens == sum(line.check_integrity() for line in self._lines)


class FairQueue:
    """Waiting requests of one lane at one deployment; it has no clock and grants nothing itself."""

    __slots__ = ("_flows", "_new", "_old", "_quantum", "num_long", "num_waiting", "tokens")

    def __init__(self) -> None:
        self._flows: dict[str, _Flow] = {}
        self._new: deque[_Flow] = deque()
        self._old: deque[_Flow] = deque()
        self._quantum = 0.0
        self.num_waiting = 0
        self.num_long = 0
        """Number of waiting long prompts."""
        self.tokens = 0
        """Tokens of all waiting requests."""

    def push(self, waiter: Waiter) -> None:
        """Add a waiting request."""
        tokens, tenant = waiter.tokens, waiter.admission_request.tenant
        self._quantum = self._quantum + _QUANTUM_SHARE * (tokens - self._quantum) if self._quantum else float(tokens)
        flow = self._flows.get(tenant)
        if flow is None:
            flow = self._flows[tenant] = _Flow(tenant)
            flow.deficit = self._quantum
            self._new.append(flow)
        flow.push(waiter)
        self.num_waiting += 1
        self.num_long += waiter.is_long
        self.tokens += tokens

    def pop(self, *, newest_first: bool = False, is_eligible: IsEligible | None = None) -> Waiter | None:
        """Remove and return the next request, or None; excluded tenants and kinds keep their place."""
        if is_eligible is None:
            flow = self._next_flow()
            return None if flow is None else self._pop(flow, newest_first, None)
        waiting = (flow for ring in (self._new, self._old) for flow in ring if flow.num_waiting)
        found = (self._pop(flow, newest_first, is_eligible) for flow in waiting)
        return next((waiter for waiter in found if waiter is not None), None)

    def remove(self, waiter: Waiter) -> None:
        """Remove a request; does nothing when it is not waiting."""
        if waiter.is_waiting:
            self._flows[waiter.admission_request.tenant].remove(waiter)
            self._left(waiter)

    def push_out(self, tenant: str, tokens: int) -> Waiter | None:
        """Remove and return the newest request of the longest backlog; None when the tenant's own is the longest."""
        longest = self._longer_than(tenant, tokens)
        if longest is None:
            return None
        waiter = longest.newest()
        self.remove(waiter)
        return waiter

    def can_push_out(self, tenant: str, tokens: int) -> bool:
        """Return whether `push_out` would find a request to remove."""
        return self._longer_than(tenant, tokens) is not None

    def tokens_ahead(self, tenant: str) -> int:
        """Return the tokens that would be served before a new request of `tenant`."""
        own = self._flows.get(tenant)
        if own is None:  # a new tenant precedes every backlog
            return min(sum(min(flow.tokens, int(self._quantum)) for flow in self._new), self.tokens)
        if len(self._flows) == 1:
            return self.tokens
        reach = own.tokens
        if len(self._flows) > MAX_FLOWS_SUMMED:
            return min(self.tokens, reach * len(self._flows))
        return sum([flow.tokens if flow.tokens < reach else reach for flow in self._flows.values()])

    def has_waiting(self, *, is_long: bool) -> bool:
        """Return whether any request of that kind waits."""
        return self.num_long > 0 if is_long else self.num_waiting > self.num_long

    def num_waiting_of(self, tenant: str) -> int:
        """Return the number of waiting requests of one tenant."""
        flow = self._flows.get(tenant)
        return 0 if flow is None else flow.num_waiting

    @property
    def num_tenants(self) -> int:
        """Number of tenants that wait, or have not had their turn since."""
        return len(self._flows)

    def _longer_than(self, tenant: str, tokens: int) -> _Flow | None:
        longest = max(self._flows.values(), key=_tokens_of, default=None)
        own = self._flows.get(tenant)
        wanted = tokens if own is None else own.tokens + tokens
        return longest if longest is not None and longest is not own and longest.tokens > wanted else None

    def _pop(self, flow: _Flow, newest_first: bool, is_eligible: IsEligible | None) -> Waiter | None:
        waiter = flow.pop(newest_first=newest_first, is_eligible=is_eligible)
        if waiter is not None:
            flow.deficit -= waiter.tokens
            self._left(waiter)
        return waiter

    def _left(self, waiter: Waiter) -> None:
        self.num_waiting -= 1
        self.num_long -= waiter.is_long
        self.tokens -= waiter.tokens
        if self.num_waiting == 0:  # without competition debts are void
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
                    self._skip_empty_cycles()
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
        """Remove a tenant without waiting requests; a new one stays for a round, so returning at once gains nothing."""
        if flow.is_new and self._old:
            flow.is_new = False
            self._old.append(flow)
        else:
            del self._flows[flow.tenant]

    def _skip_empty_cycles(self) -> None:
        """Skip the cycles in which all tenants are in debt, after a request far larger than the quantum."""
        least = min(-flow.deficit for flow in self._flows.values())
        cycles = least // self._quantum
        for flow in self._flows.values():
            flow.deficit += cycles * self._quantum

    def check_integrity(self) -> None:
        """Check the invariants, for tests and idle moments; raises AssertionError."""
        flows = self._flows.values()
        assert self.num_waiting == sum(flow.num_waiting for flow in flows)
        assert self.tokens == sum(flow.tokens for flow in flows)
        assert 0 <= self.num_long <= self.num_waiting
        assert sorted(map(id, flows)) == sorted(map(id, [*self._new, *self._old])), "a tenant is in no ring, or in two"
        assert all(flow.is_new for flow in self._new)
        for flow in flows:
            flow.check_integrity()


def _tokens_of(flow: _Flow) -> int:
    return flow.tokens


def _due_at(waiter: Waiter) -> float:
    return waiter.due_at


def _since(waiter: Waiter) -> float:
    return waiter.since

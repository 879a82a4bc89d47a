"""FairQueue: who in one lane is next.

Between tenants: deficit round robin, counted in tokens. A tenant that had nothing waiting goes before those that have
a backlog, for one quantum, so that whoever asks rarely hardly notices whoever asks all the time. A tenant that leaves
and comes back gains nothing: it keeps its place among the others until its debt is paid.

Within a tenant: the earliest due first, which is the order of arrival where all have one target; or, when told that
time no longer suffices for all, the newest first, which still has some. Its short and its long prompts stand in two
lines, so that one kind goes on while the other may not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from gateway.limits.permit import Waiter

MAX_FLOWS_SUMMED: Final = 64
"""Backlogs of more tenants than this are bounded, not added up, when a wait is forecast."""
MayGo = Callable[[str, bool], bool]
"""Whether a tenant may start one more, of long prompts or not."""
_QUANTUM_SHARE: Final = 1 / 16
_MIN_STALE: Final = 32


class _Line:
    """Waiters of one tenant and kind. Two orders over the same; those that left are skipped when met."""

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
        """Whose turn it is; it goes on waiting."""
        assert self.num_waiting > 0
        if newest_first:
            while not self._by_age[-1].is_waiting:
                self._by_age.pop()
            return self._by_age[-1]
        while not self._by_due[0][2].is_waiting:
            heappop(self._by_due)
        return self._by_due[0][2]

    def remove(self) -> None:
        """One of them, already marked, waits no longer."""
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
        """Tokens of all; raises AssertionError when the orders contradict each other."""
        waiting = [entry[2] for entry in self._by_due if entry[2].is_waiting]
        assert len(waiting) == self.num_waiting == len(list(self.from_newest()))
        return sum(waiter.tokens for waiter in waiting)


class _Flow:
    """What waits of one tenant."""

    __slots__ = ("_lines", "deficit", "is_new", "num_waiting", "tenant", "tokens")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.deficit = 0.0
        """Tokens it may still be served in this round; below 0 after a request larger than what was left."""
        self.is_new = True
        self.num_waiting = 0
        self.tokens = 0
        self._lines = (_Line(), _Line())
        """Of short prompts and of long ones."""

    def push(self, waiter: Waiter) -> None:
        waiter.is_waiting = True
        self.num_waiting += 1
        self.tokens += waiter.tokens
        self._lines[waiter.is_long].push(waiter)

    def pop(self, *, newest_first: bool, may_go: MayGo | None) -> Waiter | None:
        """The one whose turn it is, of the kinds that may go; None when those have nobody."""
        firsts = [
            line.first(newest_first=newest_first)
            for is_long, line in enumerate(self._lines)
            if line.num_waiting and (may_go is None or may_go(self.tenant, bool(is_long)))
        ]
        if not firsts:
            return None
        found = max(firsts, key=_since) if newest_first else min(firsts, key=_due_at)
        self.remove(found)
        return found

    def newest(self) -> Waiter:
        """The last that came, a client's retry before anything else."""
        found = [waiter for line in self._lines for waiter in line.from_newest()]
        return max([waiter for waiter in found if waiter.claim.is_retry] or found, key=_since)

    def remove(self, waiter: Waiter) -> None:
        waiter.is_waiting = False
        self.num_waiting -= 1
        self.tokens -= waiter.tokens
        self._lines[waiter.is_long].remove()

    def check_integrity(self) -> None:
        assert self.num_waiting == sum(line.num_waiting for line in self._lines)
        assert self.tokens == sum(line.check_integrity() for line in self._lines)


class FairQueue:
    """The waiters of one lane at one deployment. It knows no clock and grants nothing by itself."""

    __slots__ = ("_flows", "_new", "_old", "_quantum", "num_long", "num_waiting", "tokens")

    def __init__(self) -> None:
        self._flows: dict[str, _Flow] = {}
        self._new: deque[_Flow] = deque()
        self._old: deque[_Flow] = deque()
        self._quantum = 0.0
        self.num_waiting = 0
        self.num_long = 0
        """Of those, the long prompts."""
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
        self.num_long += waiter.is_long
        self.tokens += tokens

    def pop(self, *, newest_first: bool = False, may_go: MayGo | None = None) -> Waiter | None:
        """The next one, no longer waiting; `may_go` leaves out tenants and kinds, which keep their place. None when
        nobody is left."""
        if may_go is None:
            flow = self._next_flow()
            return None if flow is None else self._pop(flow, newest_first, None)
        waiting = (flow for ring in (self._new, self._old) for flow in ring if flow.num_waiting)
        found = (self._pop(flow, newest_first, may_go) for flow in waiting)
        return next((waiter for waiter in found if waiter is not None), None)

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

    def has_waiting(self, *, is_long: bool) -> bool:
        """Whether anybody of that kind waits."""
        return self.num_long > 0 if is_long else self.num_waiting > self.num_long

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

    def _pop(self, flow: _Flow, newest_first: bool, may_go: MayGo | None) -> Waiter | None:
        waiter = flow.pop(newest_first=newest_first, may_go=may_go)
        if waiter is not None:
            flow.deficit -= waiter.tokens
            self._left(waiter)
        return waiter

    def _left(self, waiter: Waiter) -> None:
        self.num_waiting -= 1
        self.num_long -= waiter.is_long
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

    def check_integrity(self) -> None:
        """Raises AssertionError when the books contradict each other; for tests and idle moments."""
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

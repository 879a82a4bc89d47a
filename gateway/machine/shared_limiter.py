"""SharedLimiter: the permits of one deployment for all processes of a gateway, which never exceed its limit together.

A process decides for its own requests, as without others; permits in use elsewhere count as in use. Far from the limit
no lock is needed: a process counts one more permit first and looks then, so others see it even while it is preempted.
Near the limit the decision is made under the lock.
Where requests of several processes wait, the processes take turns.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.limits.lane import LaneRules, LiveLane
from gateway.limits.lane_share import LaneShare
from gateway.limits.ledger import Ledger
from gateway.limits.limit import Limit
from gateway.limits.limiter import Limiter
from gateway.limits.permit import AdmissionRequest, Permit, Waiter
from gateway.machine.shared_counts import HELD_MASK, SHORT, CountsRow
from gateway.machine.wakeups import Wakeups
from gateway.timeline import Clock

RETRY_S: Final = 0.02
"""Time between two looks of a process with waiting requests, in case the process that frees a permit dies."""


class SharedLedger(Ledger):
    """A Ledger that counts the permits of other processes as in use."""

    __slots__ = ("_row",)

    def __init__(self, limit: Limit, row: CountsRow) -> None:
        self._row = row
        super().__init__(limit, start=None, is_adaptive=False)

    def refresh(self) -> None:
        """Read what is in use elsewhere, and whose turn it is."""
        row = self._row
        total = sum(row.held)
        if total < SHORT:
            self.elsewhere = total - row.held[row.column]
        else:
            self.elsewhere = row.held_elsewhere + row.num_before()

    def may_start(self, share: LaneShare, tenant: str, is_long: bool, now: float) -> bool:
        """Return whether a permit is free for this lane and tenant, and a prompt of this kind may be sent."""
        row = self._row
        total = sum(row.held)
        if total < SHORT:  # as in `refresh`, without its call on every request
            self.elsewhere = total - row.held[row.column]
        else:
            self.refresh()
        return super().may_start(share, tenant, is_long, now)

    def next_waiter(self, now: float) -> tuple[LaneShare, Waiter] | None:
        """Remove and return the next request that may start, from the lane that has spent least for its weight."""
        self.refresh()
        return super().next_waiter(now)

    def _num_held_elsewhere(self) -> int:
        return self._row.held_elsewhere

    def _num_ahead_elsewhere(self, num_ahead: float) -> float:
        return self._row.num_waiting_elsewhere(num_ahead + 1.0)  # processes take turns

    def open(self, share: LaneShare, admission_request: AdmissionRequest, is_long: bool, now: float) -> int:
        """Count one more permit; return the tokens that its prompt counts until its first token."""
        row = self._row
        row.held[row.column] += 1
        row.note_granted()
        return super().open(share, admission_request, is_long, now)

    def close(self, share: LaneShare, admission_request: AdmissionRequest, tokens: int) -> None:
        """Uncount a permit of `tokens`."""
        super().close(share, admission_request, tokens)
        row = self._row
        row.held[row.column] -= 1


class SharedLimiter(Limiter):
    """A Limiter whose permits are those of all processes; the queue in front of it is this process's part."""

    __slots__ = ("__weakref__", "_retry", "_row", "_wakeups")

    def __init__(self, limit: Limit, row: CountsRow, wakeups: Wakeups, *, clock: Clock) -> None:
        super().__init__(limit, clock=clock, ledger=SharedLedger(limit, row))
        self._row = row
        self._wakeups = wakeups
        self._retry: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """Permits that may be in use at once: what this process's lanes may have, and what others hold."""
        return self.permits()[1]

    @property
    def in_flight(self) -> int:
        """Permits in use, of all processes."""
        return sum(self._row.held) & HELD_MASK

    def permits(self) -> tuple[int, int]:
        """Return `in_flight` and `limit`."""
        row, ledger = self._row, self._ledger
        total, cap = sum(row.held), ledger.cap
        limit = ledger.limit + ((total - row.held[row.column]) & HELD_MASK)
        return total & HELD_MASK, limit if limit < cap else cap

    @property
    def has_free(self) -> bool:
        """True if fewer permits are in use than may be."""
        row, ledger = self._row, self._ledger
        total = sum(row.held) & HELD_MASK
        return total < ledger.cap and row.held[row.column] & HELD_MASK < ledger.limit

    @property
    def num_waiting(self) -> int:
        """Number of requests in this deployment's queues of all processes."""
        return self._row.num_waiting

    def try_acquire(self, admission_request: AdmissionRequest) -> Permit | None:
        """Return a permit when one is free for this request and no waiting request precedes it, else None."""
        row, ledger = self._row, self._ledger
        held, column, most = row.held, row.column, ledger.cap - row.num_columns
        # Where a process is short, the sum is beyond any number of permits, so the decision is made under the lock.
        if sum(held) < most and not ledger.waiting:
            held[column] += 1
            try:
                total = sum(held)
                if total <= most:  # room for one more of every process, so nothing that follows exceeds the limit
                    ledger.elsewhere = total - held[column]
                    now, is_long = self._clock(), admission_request.is_long
                    share = ledger.shares.get(admission_request.lane) or ledger.share_of(admission_request.lane)
                    if not Ledger.may_start(ledger, share, admission_request.tenant, is_long, now):
                        return None
                    unread = ledger.open(share, admission_request, is_long, now)
                    return Permit(self, admission_request, admission_request.tokens, now, unread)
            finally:
                held[column] -= 1
        if not row.lock.acquire():
            return None
        try:
            return super().try_acquire(admission_request)
        finally:
            row.lock.release()

    def look_again(self) -> None:
        """Grant what may be granted by now; called when another process has freed a permit."""
        self._grant_waiting()
        self._pass_on()

    def take_back(self, permit: Permit) -> None:
        """Return a permit whose work is over."""
        super().take_back(permit)
        if sum(self._row.held) >= SHORT:
            self._pass_on()

    def _close(self, share: LaneShare, admission_request: AdmissionRequest, tokens: int, unread: int) -> None:
        super()._close(share, admission_request, tokens, unread)
        if sum(self._row.held) >= SHORT:
            self._pass_on()

    def _enqueue(self, share: LaneShare, waiter: Waiter) -> None:
        self._row.wait(1)
        super()._enqueue(share, waiter)
        self._wakeups.add(self)
        self._grant_waiting()  # a permit may have returned elsewhere since the last look

    def _left_queue(self, share: LaneShare) -> None:
        self._row.wait(-1)
        super()._left_queue(share)
        if not self._ledger.waiting:
            self._row.is_short = False
            self._wakeups.discard(self)

    def _grant_waiting(self) -> None:
        if not self._ledger.waiting:
            return
        row = self._row
        if row.lock.acquire():
            try:
                row.is_short = True  # what is granted now is in turn
                super()._grant_waiting()
                row.is_short = bool(self._ledger.waiting) and self._is_short()
            finally:
                row.lock.release()
        if self._ledger.waiting and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._look_later)

    def _is_short(self) -> bool:
        """Return whether waiting requests want permits, rather than room in their lane."""
        ledger = self._ledger
        assert isinstance(ledger, SharedLedger), "made with it"
        ledger.refresh()
        return ledger.cap - ledger.in_flight - ledger.elsewhere <= 0

    def _look_later(self) -> None:
        self._retry = None
        self.look_again()

    def _pass_on(self) -> None:
        """Wake the process whose turn it is, if a permit is free for it."""
        row = self._row
        if row.is_any_short and row.num_held < self._ledger.cap:
            column = row.next_short()
            if column is not None:
                self._wakeups.wake(column)


class SharedLane(LiveLane):
    """A LiveLane whose queue bound holds for all processes together."""

    __slots__ = ("_num_waiting", "_row")

    def __init__(self, lane_id: str, row: CountsRow, *, rules: LaneRules) -> None:
        self._row = row
        self._num_waiting = 0
        super().__init__(lane_id, rules=rules)

    @property
    def num_waiting(self) -> int:
        """Number of this process's waiting requests."""
        return self._num_waiting

    @num_waiting.setter
    def num_waiting(self, value: int) -> None:
        self._row.wait(value - self._num_waiting)
        self._num_waiting = value

    @property
    def total_waiting(self) -> int:
        """Number of waiting requests of all processes."""
        return sum(self._row.waiting)

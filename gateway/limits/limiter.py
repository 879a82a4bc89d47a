"""Limiter: the permits of one deployment, fair between tenants of a lane and weighted between lanes.

Three rules choose the next grant:

- Of the lanes with waiting requests that may start, the one that has spent least for its weight is next.
- In that lane, the tenant whose turn it is by tokens is next.
- Of that tenant, the earliest due is next, or the newest while the lane is saturated.

After every change all requests that may start have started, so a request that still waits may not.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.errors import Shed
from gateway.limits import refusal
from gateway.limits.lane import LiveLane
from gateway.limits.lane_share import LaneShare
from gateway.limits.ledger import Ledger
from gateway.limits.limit import Limit
from gateway.limits.permit import NEVER, AdmissionRequest, Permit, Waiter
from gateway.timeline import Clock

RETRY_SHARE: Final = 0.5
"""Share of the queue beyond which clients' retries may not wait; retries are the first to be refused."""


class Limiter:
    """Enforcement of a Limit; single-threaded, every call runs on the event loop."""

    __slots__ = ("_clock", "_ledger", "_virtual_time")

    def __init__(
        self,
        limit: Limit,
        *,
        clock: Clock,
        start: int | None = None,
        is_adaptive: bool = False,
        ledger: Ledger | None = None,
    ) -> None:
        """Create a limiter without permits in use.

        Args:
            limit: The limit of the deployment.
            clock: Monotonic clock.
            start: Requests that a lane starts with where the operator sets no limit; implies adaptive limits.
            is_adaptive: True for adaptive limits in the lanes.
            ledger: Counts of permits that others have a part of; None for counts of its own.
        """
        self._clock = clock
        self._ledger = ledger or Ledger(limit, start=start, is_adaptive=is_adaptive)
        self._virtual_time = 0.0

    @property
    def limit(self) -> int:
        """Permits that may be in use at once, all lanes together."""
        return self._ledger.limit

    @property
    def in_flight(self) -> int:
        """Permits in use."""
        return self._ledger.in_flight

    @property
    def own_in_flight(self) -> int:
        """Permits in use by this process's requests."""
        return self._ledger.in_flight

    def permits(self) -> tuple[int, int]:
        """Return `in_flight` and `limit`."""
        ledger = self._ledger
        return ledger.in_flight, ledger.limit

    @property
    def has_free(self) -> bool:
        """True if fewer permits are in use than may be."""
        return self._ledger.in_flight < self._ledger.limit

    @property
    def num_waiting(self) -> int:
        """Number of requests in this deployment's queue."""
        return self.own_waiting

    @property
    def own_waiting(self) -> int:
        """Number of this process's requests in this deployment's queue."""
        return sum([share.queue.num_waiting for share in self._ledger.waiting.values()])

    @property
    def num_unread(self) -> int:
        """Number of permits that await a first token, of those whose prompt counts."""
        return sum([pace.num_unread for share in self._ledger.shares.values() for pace in share.paces])

    def set_limit(self, limit: Limit, *, start: int | None = None, is_adaptive: bool = False) -> None:
        """Use another Limit from now on; permits in use stay valid."""
        self._ledger.set_limit(limit, start=start, is_adaptive=is_adaptive)
        self._grant_waiting()

    def bound_seqs(self, max_num_seqs: int | None) -> None:
        """Bound the permits to the rows beyond which the time between tokens misses its target; None for no bound."""
        if self._ledger.bound_seqs(max_num_seqs):
            self._grant_waiting()

    def set_room(self, step_tokens: int | None) -> None:
        """Set the prompt tokens that one step computes, which bound those sent ahead; None for no bound."""
        if self._ledger.set_room(step_tokens):
            self._grant_waiting()

    def wait_s(
        self,
        now: float,
        admission_request: AdmissionRequest,
        hold_s: float | None = None,
        *,
        is_newcomer: bool = False,
        is_long: bool = False,
    ) -> float:
        """Return the forecast seconds that a request waits for a permit; as `Ledger.wait_s`, with 0 for None."""
        return self._ledger.wait_s(now, admission_request, hold_s, is_newcomer=is_newcomer, is_long=is_long) or 0.0

    def expected_wait(
        self, now: float, admission_request: AdmissionRequest, hold_s: float, is_long: bool
    ) -> tuple[float, float]:
        """Return `wait_s` for a prompt of this kind, and the factor by which the lane's forecasts are exceeded."""
        ledger = self._ledger
        share = ledger.shares.get(admission_request.lane) or ledger.share_of(admission_request.lane)
        if ledger.waiting or not ledger.may_start(share, admission_request.tenant, is_long, now):
            return ledger.wait_s(now, admission_request, hold_s, is_long=is_long) or 0.0, share.overrun.ratio
        return 0.0, share.overrun.ratio

    def part_of_time(self, now: float, admission_request: AdmissionRequest) -> float:
        """Return the share of the time to a target that the tenant may use; see `LaneShare.part_of_time`."""
        return self._ledger.share_of(admission_request.lane).part_of_time(admission_request.tenant, now)

    def is_crowding(self, now: float, admission_request: AdmissionRequest) -> bool:
        """Return whether the tenant holds more than a fair part of a shared lane."""
        return self.part_of_time(now, admission_request) < 1.0

    def idle_s(self, now: float, lane: LiveLane) -> float:
        """Return the seconds since the lane's last grant, infinite before the first."""
        return now - self._ledger.share_of(lane).begun_at

    def try_acquire(self, admission_request: AdmissionRequest) -> Permit | None:
        """Return a permit when one is free for this request and no waiting request precedes it, else None."""
        ledger, now, is_long = self._ledger, self._clock(), admission_request.is_long
        share = ledger.shares.get(admission_request.lane) or ledger.share_of(admission_request.lane)
        if ledger.waiting:
            self._grant_waiting()  # a reserve may have shrunk with time
            if not ledger.may_pass(share, admission_request.tenant, is_long):
                return None
        if not ledger.may_start(share, admission_request.tenant, is_long, now):
            return None
        return Permit(
            self, admission_request, admission_request.tokens, now, ledger.open(share, admission_request, is_long, now)
        )

    def adopt(self, admission_request: AdmissionRequest) -> Permit:
        """Return a permit that another process gives up once it is counted here; both count it for a moment."""
        now, is_long = self._clock(), admission_request.is_long
        share = self._ledger.share_of(admission_request.lane)
        unread = self._ledger.open(share, admission_request, is_long, now)
        return Permit(self, admission_request, admission_request.tokens, now, unread)

    async def acquire(self, admission_request: AdmissionRequest) -> Permit:
        """Return a permit, waiting for it if necessary.

        Raises:
            Shed: There is no room to wait, or time runs out.
        """
        permit = self.try_acquire(admission_request)
        if permit is not None:
            return permit
        if not self.can_wait(admission_request):
            raise self.no_room(admission_request)
        share = self._ledger.share_of(admission_request.lane)
        if admission_request.lane.is_full:
            self._push_out(share, admission_request)
        return await self._wait(share, admission_request, self._clock())

    def can_wait(self, admission_request: AdmissionRequest) -> bool:
        """Return whether the queue has room, or a longer backlog that must make room."""
        lane = admission_request.lane
        if admission_request.is_retry:
            return lane.total_waiting < RETRY_SHARE * lane.max_queue
        return not lane.is_full or self._ledger.share_of(lane).queue.can_push_out(
            admission_request.tenant, admission_request.tokens
        )

    def no_room(self, admission_request: AdmissionRequest) -> Shed:
        """Return the refusal of a request that cannot wait."""
        queue = self._ledger.share_of(admission_request.lane).queue
        if queue.num_tenants > 1 and queue.num_waiting_of(admission_request.tenant) and not admission_request.is_retry:
            return refusal.tenant_share(admission_request.lane, self._clock())
        return refusal.queue_full(admission_request.lane, self._clock())

    # Waiting

    async def _wait(self, share: LaneShare, admission_request: AdmissionRequest, now: float) -> Permit:
        loop = asyncio.get_running_loop()
        waiter = Waiter(admission_request, now, loop.create_future())
        if waiter.due_at <= now:
            raise refusal.out_of_time(admission_request, now)
        self._enqueue(share, waiter)
        timer = None
        if waiter.due_at < NEVER:
            timer = loop.call_later(waiter.due_at - now, self._expire, share, waiter)
        try:
            refused = await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.cancelled():
                self._leave_queue(share, waiter)
            elif waiter.granted.result() is None:  # granted in the iteration of the loop that cancelled it
                self._close(share, admission_request, admission_request.tokens, waiter.unread)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if refused is not None:
            raise refused
        granted_at = self._clock()
        return Permit(self, admission_request, admission_request.tokens, granted_at, waiter.unread, granted_at - now)

    def _enqueue(self, share: LaneShare, waiter: Waiter) -> None:
        if not share.queue.num_waiting:
            self._ledger.waiting[share.lane] = share
            share.spent = max(share.spent, self._virtual_time)
        self._ledger.note_short(share, waiter)
        share.queue.push(waiter)
        share.lane.num_waiting += 1

    def _leave_queue(self, share: LaneShare, waiter: Waiter) -> None:
        if waiter.is_waiting:
            share.queue.remove(waiter)
            self._left_queue(share)

    def _left_queue(self, share: LaneShare) -> None:
        share.lane.num_waiting -= 1
        if not share.queue.num_waiting:
            del self._ledger.waiting[share.lane]

    def _push_out(self, share: LaneShare, admission_request: AdmissionRequest) -> None:
        """Refuse the newest request of the tenant with the longest backlog to make room.

        Raises:
            Shed: Nobody must make room: another process filled the lane since `can_wait`.
        """
        loser = share.queue.push_out(admission_request.tenant, admission_request.tokens)
        if loser is None:
            raise self.no_room(admission_request)
        self._left_queue(share)
        if not loser.granted.done():
            loser.granted.set_result(refusal.tenant_share(share.lane, self._clock()))

    def _expire(self, share: LaneShare, waiter: Waiter) -> None:
        if not waiter.granted.done():
            self._leave_queue(share, waiter)
            self._refuse_late(share, waiter, self._clock())

    def _refuse_late(self, share: LaneShare, waiter: Waiter, now: float) -> None:
        share.note_late(now)
        self._ledger.note_waited(share, waiter, now)
        waiter.granted.set_result(refusal.out_of_time(waiter.admission_request, now))

    # Granting

    def _grant_waiting(self) -> None:
        ledger = self._ledger
        if not ledger.waiting:
            return
        now = self._clock()
        while ledger.waiting and (found := ledger.next_waiter(now)) is not None:
            share, waiter = found
            self._left_queue(share)
            if waiter.granted.done():  # cancelled in this iteration of the loop; its task has not run yet
                continue
            if waiter.due_at < now:
                self._refuse_late(share, waiter, now)
                continue
            self._virtual_time = share.spent
            share.spent += share.lane.stride * waiter.tokens
            share.note_granted(now)
            ledger.note_waited(share, waiter, now)
            waiter.unread = ledger.open(share, waiter.admission_request, waiter.is_long, now)
            waiter.granted.set_result(None)

    def _close(self, share: LaneShare, admission_request: AdmissionRequest, tokens: int, unread: int) -> None:
        if unread:
            share.paces[admission_request.is_long].drop(unread)
        self._ledger.close(share, admission_request, tokens)
        if self._ledger.waiting:
            self._grant_waiting()

    # For permits

    def take_back(self, permit: Permit) -> None:
        """Return a permit whose work is over."""
        admission_request, now = permit.admission_request, self._clock()
        ledger = self._ledger
        share = ledger.shares[admission_request.lane]
        ledger.note_held(share, now, now - permit.granted_at, admission_request.tokens)
        admission_request.lane.drained.add(now)
        if permit.unread:
            share.paces[admission_request.is_long].drop(permit.unread)
        ledger.close(share, admission_request, permit.tokens)
        if ledger.waiting:
            self._grant_waiting()

    def drop(self, permit: Permit) -> None:
        """Return a permit that no work used."""
        share = self._ledger.shares[permit.admission_request.lane]
        self._close(share, permit.admission_request, permit.tokens, permit.unread)

    def resize(self, permit: Permit, tokens: int) -> None:
        """Correct the work counted for a permit to `tokens`."""
        share = self._ledger.shares[permit.admission_request.lane]
        share.tokens += tokens - permit.tokens
        permit.tokens = tokens
        self._grant_waiting()

    def note_ttft(self, permit: Permit, measured_s: float, expected_s: float) -> None:
        """Learn from a permit's first token; `expected_s` is its TTFT without a queue."""
        admission_request, ledger, now = permit.admission_request, self._ledger, self._clock()
        share = ledger.shares[admission_request.lane]
        if permit.unread:
            share.paces[admission_request.is_long].read(now, permit.unread)
            permit.unread = 0
        ledger.note_ttft(share, admission_request, now, measured_s, expected_s)
        self._grant_waiting()

    def check_integrity(self) -> None:
        """Check the invariants, for tests and idle moments; raises AssertionError."""
        self._ledger.check_integrity()

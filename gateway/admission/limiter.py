"""Limiter: hands out the permits of one deployment, first come first served in a lane, by weight between lanes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial

from gateway.admission.lane import Lane
from gateway.admission.limit import Limit
from gateway.admission.permit import Permit
from gateway.errors import Shed, ShedReason
from gateway.timeline import Clock


class _Waiter:
    """One request in the queue; `granted` becomes True with a unit already counted, False when it is too late."""

    __slots__ = ("granted", "lane", "since")

    def __init__(self, lane: Lane, since: float, granted: asyncio.Future[bool]) -> None:
        self.lane = lane
        self.since = since
        self.granted = granted


class Limiter:
    """Enforces a Limit. Single-threaded: every call runs on the event loop."""

    __slots__ = ("_clock", "_limit", "_queues", "_spent", "_virtual_time", "in_flight")

    def __init__(self, limit: Limit, *, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._queues: dict[str, OrderedDict[_Waiter, None]] = {}
        """By lane id; only lanes in which somebody waits."""
        self._spent: dict[str, float] = {}
        """Strides each lane has used; the waiting lane with the least is served next."""
        self._virtual_time = 0.0
        self.in_flight = 0

    @property
    def limit(self) -> int:
        """Permits that may be out at once now."""
        return self._limit.value

    @property
    def num_waiting(self) -> int:
        """Requests in this deployment's queue."""
        return sum(map(len, self._queues.values()))

    def set_limit(self, limit: Limit) -> None:
        """Use another Limit from now on; permits already out stay valid."""
        self._limit = limit
        self._grant_waiting()

    def try_acquire(self, lane: Lane) -> Permit | None:
        """A permit when one is free and nobody waits for it, else None."""
        if self._queues or self.in_flight >= self._limit.value:
            return None
        self.in_flight += 1
        return Permit(partial(self._give_back, lane))

    async def acquire(self, lane: Lane, deadline_at: float | None = None) -> Permit:
        """A permit, after waiting if need be; raises Shed when the lane's queue is full or the deadline passes."""
        permit = self.try_acquire(lane)
        if permit is not None:
            return permit
        if lane.is_full:
            raise self._queue_full(lane)
        return await self._wait(lane, deadline_at)

    async def _wait(self, lane: Lane, deadline_at: float | None) -> Permit:
        loop = asyncio.get_running_loop()
        waiter = _Waiter(lane, self._clock(), loop.create_future())
        self._enqueue(waiter)
        timer = None
        if deadline_at is not None:
            timer = loop.call_later(max(deadline_at - waiter.since, 0.0), self._expire, waiter)
        try:
            is_granted = await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.cancelled():
                self._leave_queue(waiter)
            elif waiter.granted.result():  # granted in the same turn of the loop in which the task was cancelled
                self._give_back(lane)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if not is_granted:
            raise self._too_late(lane)
        return Permit(partial(self._give_back, lane), self._clock() - waiter.since)

    def _enqueue(self, waiter: _Waiter) -> None:
        lane = waiter.lane
        queue = self._queues.get(lane.id)
        if queue is None:
            queue = self._queues[lane.id] = OrderedDict()
            self._spent[lane.id] = max(self._spent.get(lane.id, 0.0), self._virtual_time)
        queue[waiter] = None
        lane.num_waiting += 1

    def _leave_queue(self, waiter: _Waiter) -> None:
        queue = self._queues.get(waiter.lane.id)
        if queue is None or waiter not in queue:  # passed over by _grant_waiting before its own task noticed
            return
        del queue[waiter]
        if not queue:
            del self._queues[waiter.lane.id]
        waiter.lane.num_waiting -= 1

    def _expire(self, waiter: _Waiter) -> None:
        if not waiter.granted.done():
            self._leave_queue(waiter)
            waiter.granted.set_result(False)

    def _give_back(self, lane: Lane) -> None:
        self.in_flight -= 1
        assert self.in_flight >= 0, "a permit was released twice"
        lane.drained.add(self._clock())
        if self._queues:
            self._grant_waiting()

    def _grant_waiting(self) -> None:
        while self._queues and self.in_flight < self._limit.value:
            lane_id = min(self._queues, key=self._spent.__getitem__)
            waiter = next(iter(self._queues[lane_id]))
            self._leave_queue(waiter)
            if waiter.granted.done():  # cancelled in this very turn; its own task has yet to notice
                continue
            self._virtual_time = self._spent[lane_id]
            self._spent[lane_id] += waiter.lane.stride
            self.in_flight += 1
            waiter.granted.set_result(True)

    def _queue_full(self, lane: Lane) -> Shed:
        wait_s = lane.predicted_wait_s(self._clock())
        return Shed(
            ShedReason.QUEUE_FULL,
            lane=lane.id,
            message=f"The queue of lane '{lane.id}' is full. Try again after the time in Retry-After.",
            hint="The same request at a later time, or in another lane.",
            retry_after_s=wait_s,
            queue_depth=lane.num_waiting,
            predicted_wait_s=wait_s,
        )

    def _too_late(self, lane: Lane) -> Shed:
        wait_s = lane.predicted_wait_s(self._clock())
        return Shed(
            ShedReason.DEADLINE,
            lane=lane.id,
            message="The client's own timeout passed while the request waited. Nothing was started.",
            hint="A longer client timeout, or the same request at a later time.",
            retry_after_s=wait_s,
            queue_depth=lane.num_waiting,
            predicted_wait_s=wait_s,
        )

    def check_integrity(self) -> None:
        """Raises AssertionError when the counts contradict each other; for tests and idle moments."""
        assert self.in_flight >= 0
        assert all(self._queues.values()), "an empty queue was kept"
        assert self._queues.keys() <= self._spent.keys()

"""SharedLimiter: permits of several processes never exceed the limit, all are used, and processes take turns."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from gateway.errors import Shed
from gateway.limits.lane import LaneRules, LiveLane
from gateway.limits.lane_share import LaneShare
from gateway.limits.ledger import Ledger
from gateway.limits.limit import StaticLimit
from gateway.limits.limiter import Limiter
from gateway.limits.permit import AdmissionRequest, Permit
from gateway.machine.shared_counts import CountsRow, SharedCounts, create_table
from gateway.machine.shared_limiter import SharedLane, SharedLimiter
from gateway.machine.wakeups import Wakeups

NUM = 3


class Machine:
    """As many processes as there are columns, all on this loop."""

    def __init__(self, limit: int, max_queue: int = 100) -> None:
        self.table = create_table(NUM)
        self.pipes = [os.pipe() for _ in range(NUM)]
        for ends in self.pipes:
            for end in ends:
                os.set_blocking(end, False)
        self.counts = [SharedCounts(self.table, num_columns=NUM, column=column) for column in range(NUM)]
        self.wakeups = [Wakeups(own, [end for _, end in self.pipes]) for own, _ in self.pipes]
        self.limiters = [
            SharedLimiter(StaticLimit(limit), CountsRow(counts, "deployment a"), wakeups, clock=time.monotonic)
            for counts, wakeups in zip(self.counts, self.wakeups, strict=True)
        ]
        self.lanes = [
            SharedLane("batch", CountsRow(counts, "lane batch"), rules=LaneRules(max_queue=max_queue))
            for counts in self.counts
        ]
        for wakeups in self.wakeups:
            wakeups.begin()

    async def acquire(self, process: int) -> Permit:
        """A permit for a request that came to a process."""
        return await self.limiters[process].acquire(AdmissionRequest(self.lanes[process]))

    def close(self) -> None:
        for wakeups in self.wakeups:
            wakeups.end()
        for ends in self.pipes:
            for end in ends:
                os.close(end)


@contextmanager
def machine(limit: int, max_queue: int = 100) -> Iterator[Machine]:
    found = Machine(limit, max_queue)
    try:
        yield found
    finally:
        found.close()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_permits_elsewhere_count() -> None:
    with machine(2) as all_of_them:
        held = [await all_of_them.acquire(0), await all_of_them.acquire(1)]
        waiting = asyncio.create_task(all_of_them.acquire(2))
        await settle()
        assert not waiting.done()
        assert {limiter.in_flight for limiter in all_of_them.limiters} == {2}
        assert {limiter.num_waiting for limiter in all_of_them.limiters} == {1}
        assert not any(limiter.has_free for limiter in all_of_them.limiters)
        assert [limiter.own_in_flight for limiter in all_of_them.limiters] == [1, 1, 0]
        held[0].release()
        (await asyncio.wait_for(waiting, 5)).release()
        held[1].release()
        assert {limiter.in_flight for limiter in all_of_them.limiters} == {0}


async def test_processes_take_turns_where_all_have_waiting_requests() -> None:
    with machine(1) as all_of_them:
        permit = await all_of_them.acquire(0)
        order: list[int] = []

        async def use(process: int) -> None:
            with await all_of_them.acquire(process):
                order.append(process)

        tasks = [asyncio.create_task(use(process)) for process in (0, 0, 0, 1, 1, 2, 2)]
        await settle()
        permit.release()
        await asyncio.wait_for(asyncio.gather(*tasks), 10)
        assert sorted(order[:3]) == [0, 1, 2]
        assert sorted(order[3:6]) == [0, 1, 2]


async def test_a_queues_bound_holds_for_all_processes() -> None:
    with machine(1, max_queue=2) as all_of_them:
        permit = await all_of_them.acquire(0)
        waiting = [asyncio.create_task(all_of_them.acquire(process)) for process in (1, 2)]
        await settle()
        assert all(lane.is_full for lane in all_of_them.lanes)
        with pytest.raises(Shed):
            await all_of_them.acquire(0)
        permit.release()
        for task in waiting:
            (await asyncio.wait_for(task, 5)).release()
        assert {lane.total_waiting for lane in all_of_them.lanes} == {0}


async def test_a_queue_that_another_process_fills_meanwhile_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with machine(1, max_queue=1) as all_of_them:
        permit = await all_of_them.acquire(1)
        look = SharedLimiter.can_wait

        def is_filled_after(self: SharedLimiter, admission_request: AdmissionRequest) -> bool:
            can_wait = look(self, admission_request)
            all_of_them.lanes[1].num_waiting += 1
            return can_wait

        monkeypatch.setattr(SharedLimiter, "can_wait", is_filled_after)
        with pytest.raises(Shed):
            await all_of_them.acquire(0)
        assert all_of_them.lanes[0].num_waiting == 0
        permit.release()


async def test_a_process_that_is_preempted_before_it_takes_a_permit_exceeds_no_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with machine(10) as all_of_them:
        permits = [await all_of_them.acquire(1) for _ in range(6)]
        look = Ledger.may_start

        def is_preempted_after(self: Ledger, share: LaneShare, tenant: str, is_long: bool, now: float) -> bool:
            may_start = look(self, share, tenant, is_long, now)
            monkeypatch.setattr(Ledger, "may_start", look)
            for process in (1, 2):
                admission_request = AdmissionRequest(all_of_them.lanes[process])
                while (permit := all_of_them.limiters[process].try_acquire(admission_request)) is not None:
                    permits.append(permit)
            return may_start

        monkeypatch.setattr(Ledger, "may_start", is_preempted_after)
        permits.append(await all_of_them.acquire(0))
        assert all_of_them.limiters[0].in_flight == len(permits) == 10
        for permit in permits:
            permit.release()
        assert {limiter.in_flight for limiter in all_of_them.limiters} == {0}


async def test_what_processes_learn_for_their_own_lanes_adds_up() -> None:
    with machine(64) as all_of_them:
        permits = []
        for process, limiter in enumerate(all_of_them.limiters):
            limiter.set_limit(StaticLimit(64), is_adaptive=True)
            permits += [await all_of_them.acquire(process) for _ in range(8)]
        for lane, limiter in zip(all_of_them.lanes, all_of_them.limiters, strict=True):
            learned = limiter._ledger.shares[lane].limit
            assert learned is not None
            learned.value = 12.0 * permits[0].tokens
            limiter._ledger.refresh_limit()
            assert limiter.limit == 12 + 16
            assert limiter.permits() == (24, 28)
            assert limiter.has_free
        for permit in permits:
            permit.release()
        assert [limiter.limit for limiter in all_of_them.limiters] == [12, 12, 12]


async def test_the_forecast_counts_what_other_processes_hold_and_who_takes_a_turn_first() -> None:
    with machine(2) as all_of_them:
        permits = [await all_of_them.acquire(0) for _ in range(2)]
        waiting = [asyncio.create_task(all_of_them.acquire(0)) for _ in range(20)]
        await settle()
        request = AdmissionRequest(all_of_them.lanes[1])
        limiter = all_of_them.limiters[1]
        expected_s, _ = limiter.expected_wait(time.monotonic(), request, 1.0, False)
        assert 0.5 <= expected_s <= 2.0, "2 permits that return each second, and a turn of process 0 before"
        assert limiter.wait_s(time.monotonic(), request) == 0.0, "nobody knows how long permits are held"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for permit in permits:
            permit.release()


async def test_a_dead_processs_permits_are_free_again() -> None:
    with machine(1) as all_of_them:
        await all_of_them.acquire(0)
        waiting = asyncio.create_task(all_of_them.acquire(1))
        await settle()
        assert not waiting.done()
        all_of_them.counts[2].clear(0)
        (await asyncio.wait_for(waiting, 5)).release()


@pytest.mark.parametrize("seed", range(20))
async def test_random_traffic_never_exceeds_the_limit_and_leaves_nothing(seed: int) -> None:
    rng = random.Random(seed)
    limit = rng.randint(1, 6)
    with machine(limit) as all_of_them:
        num_held = most = 0

        async def live(process: int) -> None:
            nonlocal num_held, most
            await asyncio.sleep(rng.random() * 0.01)
            with await all_of_them.acquire(process):
                num_held += 1
                most = max(most, num_held)
                try:
                    await asyncio.sleep(rng.random() * 0.003)
                finally:
                    num_held -= 1

        tasks = [asyncio.create_task(live(rng.randrange(NUM))) for _ in range(60)]
        for task in rng.sample(tasks, 10):
            asyncio.get_running_loop().call_later(rng.random() * 0.02, task.cancel)
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
        for limiter in all_of_them.limiters:
            limiter.check_integrity()
        assert most <= limit
        assert {limiter.in_flight for limiter in all_of_them.limiters} == {0}
        assert {limiter.num_waiting for limiter in all_of_them.limiters} == {0}


def num_calls(limiter: Limiter, lane: LiveLane) -> int:
    """Return how many functions, of ours and of the interpreter, a request's way through a limiter calls."""
    num = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal num
        num += event in ("call", "c_call")

    request = AdmissionRequest(lane)
    for is_warm in (False, True):
        sys.setprofile(note if is_warm else None)
        try:
            limiter.expected_wait(1.0, request, 0.1, False)
            assert limiter.has_free
            permit = limiter.try_acquire(request)
            assert permit is not None
            limiter.permits()
            permit.release()
        finally:
            sys.setprofile(None)
    return num


async def test_counting_for_all_processes_costs_a_request_few_calls() -> None:
    with machine(64) as all_of_them:
        shared = num_calls(all_of_them.limiters[0], all_of_them.lanes[0])
    own = num_calls(Limiter(StaticLimit(64), clock=time.monotonic), LiveLane("batch", rules=LaneRules()))
    assert shared - own <= 14

"""Whatever is called, cancelled, released or changed in whatever order: every request ends once, every token is given
back once, no queue is longer than its bound, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.errors import Shed
from gateway.limits.lane import LaneRules, LiveLane
from gateway.limits.limit import StaticLimit
from gateway.limits.limiter import Limiter
from gateway.limits.permit import AdmissionRequest, Permit
from loadtests.simulation.virtual_loop import VirtualLoop

MAX_QUEUE = 6


class LimiterMachine(RuleBasedStateMachine):
    """A limiter on a virtual loop, driven one event at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.lanes = [
            LiveLane("short", rules=LaneRules(weight=8, max_queue=MAX_QUEUE, ttft_slo_s=2.0)),
            LiveLane("long", rules=LaneRules(weight=4, max_queue=MAX_QUEUE, ttft_slo_s=10.0)),
            LiveLane("batch", rules=LaneRules(weight=1, max_queue=MAX_QUEUE)),
        ]
        self.limiter = Limiter(StaticLimit(3), clock=self.loop.time, is_adaptive=True)
        self.tasks: list[asyncio.Task[None]] = []
        self.held: list[Permit] = []
        self.ends: Counter[str] = Counter()
        self.requested = 0

    def run(self, delay_s: float = 0.0) -> None:
        self.loop.run_until_complete(asyncio.sleep(delay_s))
        for _ in range(5):
            self.loop.run_until_complete(asyncio.sleep(0))

    async def routing_request(self, admission_request: AdmissionRequest) -> None:
        try:
            permit = await self.limiter.acquire(admission_request)
        except Shed:
            self.ends["shed"] += 1
            raise
        except asyncio.CancelledError:
            self.ends["cancelled"] += 1
            raise
        self.ends["granted"] += 1
        self.held.append(permit)

    @rule(
        lane=st.integers(0, 2),
        tenant=st.sampled_from("abc"),
        tokens=st.integers(1, 3000),
        within_s=st.none() | st.floats(0.0, 5.0),
        is_retry=st.booleans(),
    )
    def come(self, lane: int, tenant: str, tokens: int, within_s: float | None, is_retry: bool) -> None:
        now = self.loop.time()
        ttft_by = None if within_s is None else now + within_s
        prompt = tokens // 2  # of one token nothing is to be read
        admission_request = AdmissionRequest(
            self.lanes[lane], tenant, tokens, None, ttft_by, is_retry, now, prompt_tokens=prompt
        )
        self.requested += 1
        self.tasks.append(self.loop.create_task(self.routing_request(admission_request)))
        self.run()

    @rule(lane=st.integers(0, 2), tenant=st.sampled_from("abc"))
    def try_it(self, lane: int, tenant: str) -> None:
        admission_request = AdmissionRequest(self.lanes[lane], tenant, 10)
        wait_s = self.limiter.wait_s(self.loop.time(), admission_request)
        permit = self.limiter.try_acquire(admission_request)
        assert permit is None or wait_s == 0.0
        if permit is not None:
            self.held.append(permit)
        self.run()  # time alone may have let somebody go

    @precondition(lambda self: self.held)
    @rule(data=st.data(), ttft_s=st.floats(0.001, 5.0))
    def end(self, data: st.DataObject, ttft_s: float) -> None:
        permit = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        permit.note_ttft(ttft_s, 0.1)
        permit.settle(data.draw(st.integers(1, 4000)))
        permit.release()
        permit.release()
        permit.settle(5)
        self.run()

    @rule(data=st.data(), releases=st.booleans())
    def leave(self, data: st.DataObject, releases: bool) -> None:
        """A client leaves, perhaps in the very turn in which a permit comes free."""
        waiting = [task for task in self.tasks if not task.done()]
        if waiting:
            if releases and self.held:
                self.held.pop().release()
            data.draw(st.sampled_from(waiting)).cancel()
            self.run()

    @rule(seconds=st.floats(0.0, 40.0))
    def time_passes(self, seconds: float) -> None:
        self.run(seconds)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), ttft_s=st.floats(0.001, 5.0))
    def begin(self, data: st.DataObject, ttft_s: float) -> None:
        data.draw(st.sampled_from(self.held)).note_ttft(ttft_s, 0.1)
        self.run()

    @rule(cap=st.integers(1, 6), rows=st.none() | st.integers(1, 6), room=st.none() | st.integers(1, 2000))
    def limits_change(self, cap: int, rows: int | None, room: int | None) -> None:
        self.limiter.bound_seqs(rows)
        self.limiter.set_room(room)
        self.limiter.set_limit(StaticLimit(cap), is_adaptive=True)
        self.run()

    @invariant()
    def counts_are_right(self) -> None:
        self.limiter.check_integrity()
        assert self.limiter.in_flight == len(self.held)
        assert self.limiter.num_unread == sum(permit.unread > 0 for permit in self.held)
        num_waiting = sum(not task.done() for task in self.tasks)
        assert self.limiter.num_waiting == sum(lane.num_waiting for lane in self.lanes) == num_waiting
        assert all(lane.num_waiting <= MAX_QUEUE for lane in self.lanes)
        assert self.requested == sum(self.ends.values()) + num_waiting

    def teardown(self) -> None:
        """Nobody waits for ever: as permits come back, all who still wait are served or given."""
        for _ in range(200):
            if not self.limiter.num_waiting and not self.held:
                break
            for permit in self.held:
                permit.release()
            self.held.clear()
            self.run(0.1)
        assert (self.limiter.num_waiting, self.limiter.in_flight) == (0, 0)
        self.limiter.check_integrity()  # among others: without a permit out no work is counted
        for task in self.tasks:
            if not task.cancelled():
                task.exception()
        self.loop.close()


TestLimiterMachine = LimiterMachine.TestCase
TestLimiterMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

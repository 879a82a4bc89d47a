"""FairQueue: turns between tenants, order within one, and counts that stay right whatever happens."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.limits.fair_queue import FairQueue
from gateway.limits.lane import LiveLane
from gateway.limits.permit import AdmissionRequest, Waiter

LANE = LiveLane("a")
NO_FUTURE = cast("asyncio.Future[Any]", None)


def waiter(
    tenant: str = "t",
    tokens: int = 100,
    *,
    ttft_by: float | None = None,
    is_retry: bool = False,
    prompt: int = 0,
    since: float = 0.0,
) -> Waiter:
    return Waiter(
        AdmissionRequest(LANE, tenant, tokens, None, ttft_by, is_retry, prompt_tokens=prompt), since, NO_FUTURE
    )


def filled(*waiters: Waiter) -> FairQueue:
    queue = FairQueue()
    for one in waiters:
        queue.push(one)
    return queue


def drained(queue: FairQueue, **how: Any) -> list[Waiter]:
    out = []
    while (one := queue.pop(**how)) is not None:
        out.append(one)
    queue.check_integrity()
    return out


def test_one_tenant_without_targets_is_served_in_order() -> None:
    waiters = [waiter() for _ in range(50)]

    assert drained(filled(*waiters)) == waiters


def test_the_earliest_due_goes_first() -> None:
    late, early, never = waiter(ttft_by=9.0), waiter(ttft_by=3.0), waiter()

    assert drained(filled(late, never, early)) == [early, late, never]


def test_the_newest_goes_first_when_time_does_not_suffice_for_all() -> None:
    waiters = [waiter(ttft_by=float(number)) for number in range(5)]

    assert drained(filled(*waiters), newest_first=True) == waiters[::-1]


def test_short_prompts_of_a_tenant_pass_its_long_ones_where_those_may_not_go() -> None:
    long, short = waiter(ttft_by=3.0, prompt=5000), waiter(ttft_by=9.0, prompt=100)
    queue = filled(long, short)

    assert queue.pop(is_eligible=lambda _, is_long: not is_long) is short
    assert queue.pop(is_eligible=lambda _, is_long: not is_long) is None
    assert queue.pop() is long


def test_both_kinds_of_a_tenant_share_one_order() -> None:
    long, short = waiter(ttft_by=3.0, prompt=5000, since=1.0), waiter(ttft_by=9.0, prompt=100, since=2.0)

    assert drained(filled(short, long)) == [long, short]
    assert drained(filled(short, long), newest_first=True) == [short, long]


def test_tenants_share_in_tokens_not_in_requests() -> None:
    many_small = [waiter("small", 100) for _ in range(400)]
    few_large = [waiter("large", 1000) for _ in range(40)]
    served = drained(filled(*many_small, *few_large))[:110]

    tokens = {
        name: sum(one.tokens for one in served if one.admission_request.tenant == name) for name in ("small", "large")
    }
    assert 0.7 < tokens["small"] / tokens["large"] < 1.4


def test_whoever_calls_rarely_goes_before_a_backlog() -> None:
    queue = filled(*(waiter("greedy") for _ in range(100)))
    for _ in range(3):
        queue.pop()
    rare = waiter("rare")

    assert queue.tokens_ahead("rare") == 0
    queue.push(rare)
    assert queue.pop() is rare


def test_leaving_and_coming_back_gains_nothing() -> None:
    queue = filled(*(waiter("greedy") for _ in range(200)))
    served: list[str] = []
    for _ in range(100):
        if queue.num_waiting_of("clever") == 0:
            queue.push(waiter("clever"))
        one = queue.pop()
        assert one is not None
        served.append(one.admission_request.tenant)

    assert served.count("clever") <= 52


def test_a_request_far_larger_than_the_others_does_not_stop_anybody() -> None:
    small = [waiter("small", 10) for _ in range(100)]
    huge = waiter("huge", 1_000_000)
    queue = filled(*small[:50], huge, *small[50:])
    served = drained(queue)

    assert len(served) == 101
    assert served.index(huge) < 10


def test_the_newest_of_the_longest_backlog_makes_room_and_retries_before_it() -> None:
    retry = waiter("greedy", is_retry=True)
    backlog = [waiter("greedy"), retry, waiter("greedy"), waiter("greedy")]
    queue = filled(*backlog)

    assert queue.push_out("quiet", 100) is retry
    assert queue.push_out("quiet", 100) is backlog[3]
    assert queue.push_out("greedy", 100) is None
    queue.push(waiter("quiet"))
    assert queue.push_out("quiet", 100) is None
    assert not queue.can_push_out("quiet", 100)
    queue.check_integrity()


def test_what_is_ahead_is_no_more_than_the_own_backlog_of_everybody() -> None:
    queue = filled(*(waiter("greedy") for _ in range(10)), *(waiter("other") for _ in range(2)))

    assert queue.tokens_ahead("greedy") == 1200
    assert queue.tokens_ahead("other") == 400
    assert queue.tokens_ahead("nobody yet") <= 200


def test_with_very_many_tenants_what_is_ahead_is_bounded_from_above() -> None:
    queue = filled(*(waiter(f"t{number}", 100) for number in range(100)))

    assert queue.tokens_ahead("t5") <= queue.tokens


def test_a_filter_leaves_tenants_out_and_in_place() -> None:
    queue = filled(*(waiter("a") for _ in range(3)), waiter("b"))

    one = queue.pop(is_eligible=lambda tenant, _: tenant == "b")
    assert one is not None
    assert one.admission_request.tenant == "b"
    assert queue.pop(is_eligible=lambda tenant, _: tenant == "b") is None
    assert len(drained(queue)) == 3


class FairQueueMachine(RuleBasedStateMachine):
    """Every waiter is in the queue or has left it by exactly one way; nobody waits for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = FairQueue()
        self.inside: dict[Waiter, None] = {}
        """In the order in which they came."""

    @rule(
        tenant=st.sampled_from("abcdef"),
        tokens=st.integers(1, 5000),
        ttft_by=st.none() | st.floats(0, 100),
        is_retry=st.booleans(),
        prompt=st.sampled_from([10, 5000]),
    )
    def push(self, tenant: str, tokens: int, ttft_by: float | None, is_retry: bool, prompt: int) -> None:
        one = waiter(tenant, tokens, ttft_by=ttft_by, is_retry=is_retry, prompt=prompt, since=float(len(self.inside)))
        self.queue.push(one)
        self.inside[one] = None

    @rule(newest_first=st.booleans())
    def pop(self, newest_first: bool) -> None:
        one = self.queue.pop(newest_first=newest_first)
        assert (one is None) == (not self.inside)
        if one is not None:
            del self.inside[one]

    @rule(allowed=st.sets(st.tuples(st.sampled_from("abcdef"), st.booleans())))
    def pop_some(self, allowed: set[tuple[str, bool]]) -> None:
        one = self.queue.pop(is_eligible=lambda tenant, is_long: (tenant, is_long) in allowed)
        waiting = {(other.admission_request.tenant, other.is_long) for other in self.inside} & allowed
        assert (one is None) == (not waiting)
        if one is not None:
            assert (one.admission_request.tenant, one.is_long) in allowed
            del self.inside[one]

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(list(self.inside)))
        del self.inside[one]
        self.queue.remove(one)
        self.queue.remove(one)

    @rule(tenant=st.sampled_from("abcdefg"), tokens=st.integers(1, 5000))
    def push_out(self, tenant: str, tokens: int) -> None:
        could = self.queue.can_push_out(tenant, tokens)
        one = self.queue.push_out(tenant, tokens)
        assert (one is not None) == could
        if one is not None:
            assert one.admission_request.tenant != tenant
            del self.inside[one]

    @precondition(lambda self: len(self.inside) > 3)
    @rule()
    def everybody_comes_round(self) -> None:
        """Each tenant is served before any other has had the largest request and a round more than it."""
        largest = max(one.tokens for one in self.inside)
        waiting = {one.admission_request.tenant for one in self.inside}
        debts = 0
        while waiting:
            one = self.queue.pop()
            assert one is not None
            del self.inside[one]
            waiting.discard(one.admission_request.tenant)
            debts += one.tokens
            assert debts <= 12 * 6 * (largest + 5000) or not waiting

    @invariant()
    def counts_are_right(self) -> None:
        self.queue.check_integrity()
        assert self.queue.num_waiting == len(self.inside)
        assert self.queue.tokens == sum(one.tokens for one in self.inside)
        for is_long in (False, True):
            assert self.queue.has_waiting(is_long=is_long) == any(one.is_long is is_long for one in self.inside)


TestFairQueueMachine = FairQueueMachine.TestCase
TestFairQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

"""The memory of bodies: shares, waiting, refusal, and counts that balance whatever happens."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.errors import RequestTooLarge, Shed, ShedReason
from gateway.limits.body_budget import MAX_WAITING, BodyBudget, BodyReservation


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_lone_tenant_gets_three_quarters() -> None:
    budget = BodyBudget(400)
    assert budget.open("a").try_cover(300)
    assert not budget.open("a").try_cover(1)


@pytest.mark.parametrize("num_hogs", [1, 2, 5])
def test_however_many_hog_it_the_next_tenant_finds_room(num_hogs: int) -> None:
    budget = BodyBudget(1_000_000)
    for number in range(num_hogs):
        hog = budget.open(f"hog{number}")
        while hog.try_cover(hog.num_bytes + 1000):
            pass
    free = budget.total_bytes - budget.used_bytes
    assert free > 0
    assert budget.open("next").try_cover(free // 2)
    budget.check_integrity()


def test_a_reservation_is_given_back_once() -> None:
    budget = BodyBudget(400)
    first, second = budget.open("a"), budget.open("a")
    first.try_cover(100)
    second.try_cover(50)
    first.release()
    first.release()
    assert (budget.used_bytes, budget.used_by("a")) == (50, 50)
    second.release()
    assert (budget.used_bytes, budget.used_by("a")) == (0, 0)


async def test_what_does_not_fit_waits_until_it_does() -> None:
    budget = BodyBudget(400)
    first, second = budget.open("a"), budget.open("a")
    first.try_cover(250)
    waiting = asyncio.create_task(second.cover(100))
    await settle()
    assert not waiting.done()
    first.release()
    await waiting
    assert second.num_bytes == 100


async def test_one_tenants_line_holds_up_nobody_else() -> None:
    budget = BodyBudget(400)
    budget.open("a").try_cover(290)
    waiting = asyncio.create_task(budget.open("a").cover(200))
    await settle()
    assert budget.open("b").try_cover(50)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert budget.num_waiting == 0


async def test_who_waits_for_too_long_is_refused_and_reported_when_to_come_back() -> None:
    budget = BodyBudget(400, wait_s=0.01)
    budget.open("a").try_cover(290)
    with pytest.raises(Shed) as caught:
        await budget.open("a").cover(200)
    assert caught.value.reason is ShedReason.TENANT_SHARE
    assert dict(caught.value.headers())[b"retry-after"] == b"2"
    assert budget.num_waiting == 0
    budget.check_integrity()


async def test_who_finds_others_in_its_way_is_reported_that_it_is_load() -> None:
    budget = BodyBudget(400, wait_s=0.01)
    budget.open("a").try_cover(290)
    with pytest.raises(Shed) as caught:
        await budget.open("b").cover(200)
    assert caught.value.reason is ShedReason.OVERLOAD


async def test_the_line_of_a_tenant_is_short() -> None:
    budget = BodyBudget(400)
    budget.open("a").try_cover(290)
    waiting = [asyncio.create_task(budget.open("a").cover(200)) for _ in range(MAX_WAITING)]
    await settle()
    with pytest.raises(Shed):
        await budget.open("a").cover(200)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    budget.check_integrity()


async def test_what_can_never_fit_is_refused_at_once() -> None:
    with pytest.raises(RequestTooLarge):
        await BodyBudget(400).open("a").cover(301)


async def test_a_body_that_is_half_here_goes_before_one_that_is_not() -> None:
    budget = BodyBudget(400)
    half, holder = budget.open("a"), budget.open("a")
    half.try_cover(100)
    holder.try_cover(150)
    late = asyncio.create_task(budget.open("a").cover(150))
    await settle()
    growing = asyncio.create_task(half.cover(200))
    await settle()
    holder.release()
    await growing
    assert not late.done()
    half.release()
    await late


async def test_who_leaves_at_the_moment_it_is_served_loses_nothing() -> None:
    budget = BodyBudget(400)
    first, second = budget.open("a"), budget.open("a")
    first.try_cover(290)
    waiting = asyncio.create_task(second.cover(200))
    await settle()
    first.release()  # grants
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    second.release()
    assert budget.used_bytes == 0
    budget.check_integrity()


class BudgetMachine(RuleBasedStateMachine):
    """Any order of taking and giving back leaves the counts right."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = BodyBudget(1000)
        self.held: list[BodyReservation] = []

    @rule(tenant=st.sampled_from("abc"), num_bytes=st.integers(0, 900))
    def take(self, tenant: str, num_bytes: int) -> None:
        reservation = self.budget.open(tenant)
        reservation.try_cover(num_bytes)
        self.held.append(reservation)

    @rule(index=st.integers(0, 20), num_bytes=st.integers(0, 900))
    def grow(self, index: int, num_bytes: int) -> None:
        if self.held:
            self.held[index % len(self.held)].try_cover(num_bytes)

    @rule(index=st.integers(0, 20))
    def release(self, index: int) -> None:
        if self.held:
            self.held[index % len(self.held)].release()

    @invariant()
    def counts_are_right(self) -> None:
        self.budget.check_integrity()
        assert self.budget.used_bytes == sum(reservation.num_bytes for reservation in self.held)
        assert self.budget.used_bytes < self.budget.total_bytes, "some of it stays free"


TestBudget = BudgetMachine.TestCase
TestBudget.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)

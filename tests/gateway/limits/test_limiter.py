"""Limiter: permits, queues, fairness, and cancellation at every await."""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway.errors import Shed, ShedReason
from gateway.limits.lane import LiveLane
from gateway.limits.limit import StaticLimit
from gateway.limits.limiter import Limiter
from gateway.limits.permit import AdmissionRequest, Permit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def limiter(limit: int, clock: Clock | None = None) -> Limiter:
    return Limiter(StaticLimit(limit), clock=clock or Clock())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_grants_up_to_the_limit_and_queues_the_rest() -> None:
    limited, lane = limiter(2), LiveLane("interactive")
    first = await limited.acquire(AdmissionRequest(lane))
    await limited.acquire(AdmissionRequest(lane))
    third = asyncio.create_task(limited.acquire(AdmissionRequest(lane)))
    await settle()

    assert (limited.in_flight, lane.num_waiting) == (2, 1)
    first.release()
    await third
    assert (limited.in_flight, lane.num_waiting) == (2, 0)


async def test_a_second_release_does_nothing() -> None:
    limited = limiter(1)
    permit = await limited.acquire(AdmissionRequest(LiveLane("a")))
    with permit:
        permit.release()
    permit.release()

    assert limited.in_flight == 0
    assert permit.is_released


async def test_one_lane_is_served_in_order() -> None:
    limited, lane = limiter(1), LiveLane("a")
    order: list[int] = []

    async def work(number: int) -> None:
        with await limited.acquire(AdmissionRequest(lane)):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(number) for number in range(10)))

    assert order == list(range(10))


async def test_nobody_overtakes_the_queue() -> None:
    limited, lane = limiter(1), LiveLane("a")
    held = await limited.acquire(AdmissionRequest(lane))
    waiting = asyncio.create_task(limited.acquire(AdmissionRequest(lane)))
    await settle()
    limited.set_limit(StaticLimit(1))

    assert limited.try_acquire(AdmissionRequest(lane)) is None
    held.release()
    assert limited.try_acquire(AdmissionRequest(lane)) is None
    (await waiting).release()
    assert limited.try_acquire(AdmissionRequest(lane)) is not None


async def test_lanes_share_by_weight() -> None:
    limited, heavy, light = limiter(1), LiveLane("heavy", weight=3), LiveLane("light", weight=1)
    held = await limited.acquire(AdmissionRequest(heavy))
    order: list[str] = []

    async def work(lane: LiveLane) -> None:
        with await limited.acquire(AdmissionRequest(lane)):
            order.append(lane.id)

    tasks = [asyncio.create_task(work(lane)) for lane in [light] * 20 + [heavy] * 20]
    await settle()
    held.release()
    await asyncio.gather(*tasks)

    assert order[:16].count("heavy") == 12


async def test_a_full_queue_sheds_at_once_with_the_wait_it_predicts() -> None:
    clock = Clock()
    limited, lane = limiter(1, clock), LiveLane("a", max_queue=1)
    for _ in range(20):  # two a second
        (await limited.acquire(AdmissionRequest(lane))).release()
        clock.now += 0.5
    held = await limited.acquire(AdmissionRequest(lane))
    waiting = asyncio.create_task(limited.acquire(AdmissionRequest(lane)))
    await settle()

    with pytest.raises(Shed) as caught:
        await limited.acquire(AdmissionRequest(lane))

    assert caught.value.reason is ShedReason.QUEUE_FULL
    assert caught.value.degraded.queue_depth == 1
    assert caught.value.retry_after_s == pytest.approx(1.0, abs=0.3)
    held.release()
    (await waiting).release()


async def test_waiting_ends_at_the_deadline() -> None:
    clock = Clock()
    limited, lane = limiter(1, clock), LiveLane("a")
    held = await limited.acquire(AdmissionRequest(lane))

    with pytest.raises(Shed) as caught:
        await limited.acquire(AdmissionRequest(lane, deadline_at=clock.now + 0.01))

    assert caught.value.reason is ShedReason.DEADLINE
    assert lane.num_waiting == 0
    held.release()
    assert limited.in_flight == 0


async def test_cancelling_in_the_queue_leaves_it() -> None:
    limited, lane = limiter(1), LiveLane("a")
    held = await limited.acquire(AdmissionRequest(lane))
    waiting = asyncio.create_task(limited.acquire(AdmissionRequest(lane)))
    await settle()
    waiting.cancel()
    await settle()

    assert (lane.num_waiting, limited.num_waiting) == (0, 0)
    held.release()
    assert limited.in_flight == 0
    limited.check_integrity()


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_cancelling_in_the_turn_of_the_grant_gives_the_permit_to_the_next(cancel_first: bool) -> None:
    limited, lane = limiter(1), LiveLane("a")
    held = await limited.acquire(AdmissionRequest(lane))
    leaver = asyncio.create_task(limited.acquire(AdmissionRequest(lane)))
    next_one = asyncio.create_task(limited.acquire(AdmissionRequest(lane)))
    await settle()
    if cancel_first:
        leaver.cancel()
        held.release()
    else:
        held.release()
        leaver.cancel()

    permit = await asyncio.wait_for(next_one, 1)

    assert limited.in_flight == 1
    permit.release()
    assert (limited.in_flight, lane.num_waiting) == (0, 0)
    limited.check_integrity()


async def test_a_raised_limit_lets_waiters_in_and_a_lowered_one_waits_for_releases() -> None:
    limited, lane = limiter(1), LiveLane("a")
    held = await limited.acquire(AdmissionRequest(lane))
    waiting = asyncio.create_task(limited.acquire(AdmissionRequest(lane)))
    await settle()
    limited.set_limit(StaticLimit(2))
    other = await waiting
    limited.set_limit(StaticLimit(1))

    assert limited.try_acquire(AdmissionRequest(lane)) is None
    held.release()
    assert limited.try_acquire(AdmissionRequest(lane)) is None
    other.release()
    assert limited.try_acquire(AdmissionRequest(lane)) is not None


@pytest.mark.parametrize("seed", range(20))
async def test_no_permit_is_lost_whatever_is_cancelled_when(seed: int) -> None:
    rng = random.Random(seed)
    limited, lanes = limiter(3), [LiveLane("a", weight=2), LiveLane("b")]
    peak = 0

    async def work() -> None:
        nonlocal peak
        with await limited.acquire(AdmissionRequest(rng.choice(lanes))):
            peak = max(peak, limited.in_flight)
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)

    tasks = []
    for _ in range(80):
        tasks.append(asyncio.create_task(work()))
        if rng.random() < 0.5:
            rng.choice(tasks).cancel()
        if rng.random() < 0.3:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)

    limited.check_integrity()
    assert peak <= 3
    assert (limited.in_flight, limited.num_waiting, [lane.num_waiting for lane in lanes]) == (0, 0, [0, 0])


def test_a_permit_reports_how_long_it_was_waited_for() -> None:
    assert Permit(limiter(1), AdmissionRequest(LiveLane("a")), 1, waited_s=1.5).waited_s == 1.5

"""What is sent ahead of what a deployment has read, and who is held back for it."""

from __future__ import annotations

import asyncio

import pytest

from gateway.limits.lane import LaneRules, LiveLane
from gateway.limits.limit import StaticLimit
from gateway.limits.limiter import Limiter
from gateway.limits.permit import PATIENCE_S, AdmissionRequest, Permit, PrefillWindow

ROOM = 1000


class Clock:
    def __init__(self) -> None:
        self.now = 10.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def paced(clock: Clock, room: int | None = ROOM) -> Limiter:
    limiter = Limiter(StaticLimit(100), clock=clock, is_adaptive=True)
    limiter.set_room(room)
    return limiter


def lane(ttft_slo_s: float | None = 0.5, name: str = "interactive") -> LiveLane:
    return LiveLane(name, rules=LaneRules(ttft_slo_s=ttft_slo_s))


def admission_request(lane: LiveLane, prompt: int, tenant: str = "t") -> AdmissionRequest:
    return AdmissionRequest(lane, tenant, 2 * prompt + 1, prompt_tokens=prompt)


def send(limiter: Limiter, lane: LiveLane, prompt: int, tenant: str = "t") -> Permit | None:
    return limiter.try_acquire(admission_request(lane, prompt, tenant))


def test_no_more_is_sent_than_one_step_reads(clock: Clock) -> None:
    limiter, short = paced(clock), lane()
    assert [send(limiter, short, 400) is not None for _ in range(5)] == [True, True, True, False, False]


def test_a_first_token_lets_the_next_one_go(clock: Clock) -> None:
    async def main() -> None:
        limiter, short = paced(clock), lane()
        first = send(limiter, short, 400)
        others = [send(limiter, short, 400) for _ in range(2)]
        waiting = asyncio.ensure_future(limiter.acquire(admission_request(short, 400)))
        await asyncio.sleep(0)
        assert limiter.num_waiting == 1
        assert first is not None
        first.note_ttft(0.02, 0.02)
        assert not (await waiting).is_released
        assert (limiter.num_waiting, limiter.num_unread) == (0, len(others) + 1)

    asyncio.run(main())


def test_one_may_always_go_however_long_its_prompt(clock: Clock) -> None:
    assert send(paced(clock), lane(), 50 * ROOM) is not None


def test_another_goes_along_with_a_long_one(clock: Clock) -> None:
    limiter, short = paced(clock), lane()
    assert send(limiter, short, 50 * ROOM) is not None
    assert send(limiter, short, 400) is not None


def test_lanes_do_not_wait_for_what_another_has_sent(clock: Clock) -> None:
    limiter, long = paced(clock), lane(name="long")
    while send(limiter, long, 5000) is not None:
        pass
    assert send(limiter, lane(), 100) is not None


def test_short_prompts_of_a_lane_do_not_wait_for_its_long_ones(clock: Clock) -> None:
    async def main() -> None:
        limiter, mixed = paced(clock), lane()
        while send(limiter, mixed, 3000) is not None:
            pass
        waiting = asyncio.ensure_future(limiter.acquire(admission_request(mixed, 3000)))
        await asyncio.sleep(0)
        assert limiter.wait_s(clock.now, admission_request(mixed, 100)) == 0.0
        assert send(limiter, mixed, 100) is not None
        assert limiter.num_waiting == 1
        waiting.cancel()

    asyncio.run(main())


def test_a_tenant_with_much_sends_neither_kind_while_it_has_either_unread(clock: Clock) -> None:
    limiter, mixed = paced(clock), lane()
    assert send(limiter, mixed, 100, "quiet") is not None
    while send(limiter, mixed, 3000, "greedy") is not None:
        pass
    assert send(limiter, mixed, 100, "greedy") is None
    assert send(limiter, mixed, 100, "another") is not None


def test_who_crowds_is_forecast_to_wait_for_both_kinds_alike(clock: Clock) -> None:
    limiter, mixed = paced(clock), lane()
    for _ in range(20):
        permit = send(limiter, mixed, 400, "quiet")
        assert permit is not None
        clock.now += 0.01
        permit.note_ttft(0.01, 0.01)
        permit.release()
    assert send(limiter, mixed, 100, "quiet") is not None
    while send(limiter, mixed, 3000, "greedy") is not None:
        pass
    short, long = admission_request(mixed, 100, "greedy"), admission_request(mixed, 3000, "greedy")
    assert limiter.wait_s(clock.now, short) == limiter.wait_s(clock.now, long) > 0.0


def test_a_tenant_with_much_leaves_room_for_one_with_little(clock: Clock) -> None:
    limiter, short = paced(clock), lane()
    assert send(limiter, short, 100, "quiet") is not None
    while send(limiter, short, 100, "greedy") is not None:
        pass
    assert limiter.num_unread < ROOM / 100 / 2
    assert send(limiter, short, 100, "another") is not None


def test_a_deployment_that_shows_no_first_token_is_not_waited_for_for_ever(clock: Clock) -> None:
    limiter, short = paced(clock), lane()
    while send(limiter, short, 400) is not None:
        pass
    clock.now += PATIENCE_S
    assert send(limiter, short, 400) is not None


@pytest.mark.parametrize(("room", "slo_s"), [(None, 0.5), (ROOM, None)])
def test_nothing_is_held_back_for_an_unknown_step_or_without_a_target(
    clock: Clock, room: int | None, slo_s: float | None
) -> None:
    limiter, short = paced(clock, room), lane(slo_s)
    assert all(send(limiter, short, 400) for _ in range(50))


def test_what_ended_without_a_first_token_is_not_awaited(clock: Clock) -> None:
    limiter, short = paced(clock), lane()
    permit = send(limiter, short, 400)
    assert permit is not None
    permit.release()
    assert limiter.num_unread == 0


def test_a_short_queue_behind_prompts_is_forecast_by_how_fast_they_are_read(clock: Clock) -> None:
    limiter, short = paced(clock), lane()
    for _ in range(20):
        permit = send(limiter, short, 400)
        assert permit is not None
        clock.now += 0.01
        permit.note_ttft(0.01, 0.01)
    while send(limiter, short, 400) is not None:
        pass
    assert 0.0 < limiter.wait_s(clock.now, admission_request(short, 400), hold_s=10.0) <= 0.02


def test_the_speed_counts_only_the_time_in_which_something_was_unread() -> None:
    pace = PrefillWindow()
    for start in (0.0, 100.0, 200.0):
        pace.read(start + 0.1, pace.send(start, 50))
    assert pace.per_s == pytest.approx(10.0)

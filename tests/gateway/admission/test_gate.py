"""Gate: let in, let in as less, or refused with a reason and a hint that hold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from gateway.limits.limit import StaticLimit
from gateway.limits.permit import AdmissionRequest
from loadtests.simulation.virtual_loop import run_virtual
from tests.gateway.admission.world import Fate, Speed, Wish, World

T = TypeVar("T")

DEPLOYMENTS = """
schema_version: 1
deployments:
  - {id: large, url: "http://large", model: big, limits: {max_in_flight: 64}}
  - {id: small, url: "http://small", model: tiny, limits: {max_in_flight: 64}}
"""
LANE = "lanes: [{id: interactive, slo: {ttft_p95_ms: 500}, on_overload: %s, degraded_max_tokens: 32%s}]\n"
ROUTE = "routes: [{id: all, select: {candidates: [large]%s}}]\n"


def policy(steps: str = "[shed]", *, lane: str = "", select: str = "") -> str:
    return DEPLOYMENTS + LANE % (steps, lane) + ROUTE % select


def within(text: str, act: Callable[[World], Awaitable[T]]) -> T:
    async def main() -> T:
        world = World(text, {"large": Speed(), "small": Speed()})
        return await act(world)

    return run_virtual(main())


async def saturate(world: World) -> None:
    """The one permit of the large deployment is out, as the last one was for ten seconds; it comes back in two."""
    limiter = world.snapshot.deployments["large"].limiter
    limiter.set_limit(StaticLimit(1))
    admission_request = AdmissionRequest(world.snapshot.lanes["interactive"])
    first = limiter.try_acquire(admission_request)
    assert first is not None
    await asyncio.sleep(10.0)
    first.release()
    second = limiter.try_acquire(admission_request)
    assert second is not None
    asyncio.get_running_loop().call_later(2.0, second.release)


def headers(**values: str) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.replace("_", "-").encode(), value.encode()) for name, value in values.items())


async def routing_request(world: World, **values: str) -> Fate:
    return await world.routing_request(Wish(at_s=0.0, headers=headers(**values)))


def test_without_a_target_nothing_is_forecast_and_nothing_refused() -> None:
    async def act(world: World) -> Fate:
        await saturate(world)
        return await routing_request(world)

    assert within(policy().replace("slo: {ttft_p95_ms: 500}, ", ""), act).reason is None


def test_what_would_be_late_is_refused_at_once() -> None:
    async def act(world: World) -> Fate:
        await saturate(world)
        return await routing_request(world)

    fate = within(policy(), act)
    assert (fate.reason, fate.refused_s) == ("slo_unreachable", 0.0)


def test_a_lane_without_shed_serves_late_instead() -> None:
    async def act(world: World) -> Fate:
        await saturate(world)
        return await routing_request(world)

    fate = within(policy("[max_tokens]"), act)
    assert fate.reason is None
    assert fate.degraded == ("max-tokens",)


def test_the_small_model_answers_when_the_large_one_would_be_late() -> None:
    async def act(world: World) -> Fate:
        await saturate(world)
        return await routing_request(world)

    fate = within(policy("[small_model, shed]", select=", fallback: [small]"), act)
    assert fate.reason is None
    assert fate.degraded == ("small-model",)
    assert fate.ttft_s < 0.5


def test_steps_that_cannot_help_are_neither_taken_nor_reported() -> None:
    async def act(world: World) -> Fate:
        await saturate(world)
        return await routing_request(world)

    fate = within(policy("[small_model, max_tokens, shed]"), act)
    assert (fate.reason, fate.degraded) == ("slo_unreachable", ())


def test_a_clients_deadline_is_held_without_any_target_of_the_lane() -> None:
    async def act(world: World) -> Fate:
        await saturate(world)
        return await routing_request(world, x_stainless_read_timeout="0.5")

    assert within(policy().replace("slo: {ttft_p95_ms: 500}, ", ""), act).reason == "deadline"


@pytest.mark.parametrize("value", ["-1", "0", "1e12", "soon", "99999999999", "", "0x10"])
def test_a_target_that_is_no_number_is_ignored(value: str) -> None:
    async def act(world: World) -> Fate:
        return await routing_request(world, x_slo_ttft_ms=value)

    assert within(policy(), act).reason is None


@pytest.mark.parametrize("name", ["x_slo_ttft_ms", "x_llm_d_slo_ttft_ms"])
def test_a_client_may_want_a_refusal_sooner(name: str) -> None:
    async def act(world: World) -> Fate:
        for _ in range(5):
            await routing_request(world)
        return await routing_request(world, **{name: "1"})

    assert within(policy(), act).reason == "slo_unreachable"


def test_a_client_cannot_buy_time_that_the_lane_does_not_give() -> None:
    async def act(world: World) -> Fate:
        await saturate(world)
        return await routing_request(world, x_slo_ttft_ms="600000")

    assert within(policy(), act).reason == "slo_unreachable"


def test_a_long_prompt_stands_in_the_lane_for_long_ones() -> None:
    text = DEPLOYMENTS + "lanes: [{id: a, max_prompt_tokens: 300, longer: b}, {id: b}]\n" + ROUTE % ""

    async def act(world: World) -> tuple[str, str]:
        short, long = await asyncio.gather(
            world.routing_request(Wish(at_s=0.0, prompt_tokens=100)),
            world.routing_request(Wish(at_s=0.0, prompt_tokens=3000)),
        )
        return short.lane, long.lane

    assert within(text, act) == ("a", "b")


def test_retries_are_the_first_to_be_refused() -> None:
    async def act(world: World) -> list[Fate]:
        live = world.snapshot.deployments["large"]
        live.limiter.set_limit(StaticLimit(1))
        await world.routing_request(Wish(at_s=0.0, output_tokens=20))
        busy = asyncio.ensure_future(world.routing_request(Wish(at_s=0.0, output_tokens=20)))
        await asyncio.sleep(0.05)
        retry = asyncio.ensure_future(routing_request(world, x_stainless_retry_count="1"))
        first = asyncio.ensure_future(routing_request(world))
        return [await busy, await retry, await first]

    busy, retry, first = within(policy(), act)
    assert (busy.reason, retry.reason, first.reason) == (None, "slo_unreachable", None)
    assert retry.hint == "The same request in about 1 s."  # it requested no target that it could give up

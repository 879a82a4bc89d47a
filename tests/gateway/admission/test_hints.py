"""Hints of refusals: they name a request that would have been taken, and that one is."""

from __future__ import annotations

import asyncio

from tests.gateway.admission.test_gate import policy, routing_request, saturate, within
from tests.gateway.admission.world import Fate, World


def test_the_hint_names_a_lane_that_would_have_taken_it_and_does() -> None:
    text = policy().replace("}]\nroutes", "}, {id: batch, slo: {ttft_p95_ms: 60000}}]\nroutes")

    async def act(world: World) -> tuple[Fate, Fate]:
        await saturate(world)
        return await routing_request(world), await routing_request(world, x_penstock_priority="batch")

    refused, taken = within(text, act)
    assert refused.hint == "The same request in lane 'batch' (x-penstock-priority: batch)."
    assert taken.reason is None


def test_the_hint_names_the_target_that_would_have_been_met() -> None:
    async def act(world: World) -> tuple[Fate, Fate]:
        for _ in range(5):
            await routing_request(world)
        refused = await routing_request(world, x_slo_ttft_ms="1")
        named = refused.hint.removeprefix("A latency target of ").split(" ")[0]
        return refused, await routing_request(world, x_slo_ttft_ms=str(int(named) * 2))

    refused, taken = within(policy(), act)
    assert refused.hint.endswith("ms or more (x-slo-ttft-ms).")
    assert taken.reason is None


def test_a_client_whose_timeout_is_too_short_is_reported_one_that_is_long_enough() -> None:
    text = policy().replace("slo: {ttft_p95_ms: 500}, ", "")

    async def act(world: World) -> tuple[Fate, Fate]:
        await saturate(world)
        refused = await routing_request(world, x_stainless_read_timeout="0.5")
        seconds = refused.hint.removeprefix("A client timeout of ").split(" ")[0]
        return refused, await routing_request(world, x_stainless_read_timeout=seconds)

    refused, taken = within(text, act)
    assert refused.reason == "deadline"
    assert refused.hint.endswith("s or more.")
    assert taken.reason is None


def test_a_wait_that_passes_is_reported_in_seconds_and_stored() -> None:
    async def act(world: World) -> tuple[Fate, Fate]:
        await saturate(world)
        refused = await routing_request(world)
        await asyncio.sleep(float(refused.hint.removeprefix("The same request in about ").split(" ")[0]))
        return refused, await routing_request(world)

    refused, taken = within(policy(), act)
    assert refused.hint.startswith("The same request in about ")
    assert taken.reason is None

"""What admission guarantees under overload, in virtual time against engines of stated speed.

The engine: 16 rows, a prefill of 8,000 tokens a second, 10 ms + 1 ms a row for each step, so about 12.5 requests a
second of the mix (200 prompt and 40 output tokens, log-normal) within 500 ms to the first token and 40 ms a token.
"""

from __future__ import annotations

import asyncio
import random
from functools import cache

import pytest

from loadtests.simulation.virtual_loop import run_virtual
from tests.gateway.admission.world import Fates, Speed, Wish, World, poisson, quantile, together

TTFT_S, TPOT_S = 0.5, 0.04
CAPACITY_PER_S = 12.5
WARM_S = 8.0
SPAN_S = 38.0

POLICY = """
schema_version: 1
deployments: [{id: a, url: "http://a", model: m, limits: {max_in_flight: 64}}]
lanes: [{id: interactive, slo: {ttft_p95_ms: 500, tpot_p95_ms: 40}}]
routes: [{id: all, select: {candidates: [a]}}]
"""
LANES = """
schema_version: 1
deployments: [{id: a, url: "http://a", model: m, limits: {max_in_flight: 64}}]
lanes:
  - {id: interactive, weight: 8, slo: {ttft_p95_ms: 500, tpot_p95_ms: 40}, max_prompt_tokens: 1000, longer: long}
  - {id: long, weight: 4, slo: {ttft_p95_ms: 4000}}
routes: [{id: all, select: {candidates: [a]}}]
"""


def run(wishes: list[Wish], policy: str = POLICY) -> Fates:
    async def main() -> Fates:
        return await World(policy, {"a": Speed()}).run(wishes)

    return run_virtual(main())


@cache
def at_load(times: float) -> Fates:
    return run(poisson(times * CAPACITY_PER_S, SPAN_S, random.Random(1))).after(WARM_S)


def good_per_s(fates: Fates) -> float:
    return fates.num_good(TTFT_S, TPOT_S) / (SPAN_S - WARM_S)


@pytest.mark.parametrize(("times", "share"), [(2.0, 0.95), (5.0, 0.90), (10.0, 0.85)])
def test_goodput_holds_whatever_is_offered(times: float, share: float) -> None:
    assert good_per_s(at_load(times)) >= share * good_per_s(at_load(1.0))


@pytest.mark.parametrize("times", [1.0, 2.0, 5.0, 10.0])
def test_those_let_in_are_answered_in_time(times: float) -> None:
    fates = at_load(times)

    assert fates.ttft_s(0.99) <= 1.3 * TTFT_S
    assert quantile([fate.ttft_s <= TTFT_S for fate in fates.admitted], 0.05)


@pytest.mark.parametrize("times", [2.0, 5.0, 10.0])
def test_refusals_come_at_once(times: float) -> None:
    refused = at_load(times).refused

    assert quantile([fate.refused_s for fate in refused], 0.98) <= 0.005
    assert {fate.reason for fate in refused} == {"slo_unreachable"}


def test_when_the_flood_ends_everything_is_as_before() -> None:
    rng = random.Random(3)
    before = poisson(0.5 * CAPACITY_PER_S, 20.0, rng)
    flood = poisson(10 * CAPACITY_PER_S, 15.0, rng, starts_s=20.0)
    after = poisson(0.5 * CAPACITY_PER_S, 30.0, rng, starts_s=35.0)
    fates = run([*before, *flood, *after])

    calm, again = fates.after(WARM_S, 20.0), fates.after(40.0)
    assert again.refused == []
    assert again.ttft_s(0.95) <= max(1.3 * calm.ttft_s(0.95), calm.ttft_s(0.99))


def test_a_brown_out_refuses_what_would_be_late_and_passes() -> None:
    async def main() -> Fates:
        world = World(POLICY, {"a": Speed()})
        loop = asyncio.get_running_loop()
        loop.call_at(15.0, setattr, world.engines["a"], "slowdown", 10.0)
        loop.call_at(25.0, setattr, world.engines["a"], "slowdown", 1.0)
        return await world.run(poisson(0.6 * CAPACITY_PER_S, 60.0, random.Random(4)))

    fates = run_virtual(main())
    during, after = fates.after(18.0, 25.0), fates.after(40.0)
    assert len(during.refused) > len(during.admitted)
    assert len(after.refused) <= 0.01 * len(after.all)
    assert after.ttft_s(0.95) <= TTFT_S


def light(seed: int) -> list[Wish]:
    rng = random.Random(seed)
    return together(*(poisson(0.75, 60.0, rng, tenant=f"quiet-{number}") for number in range(5)))


def test_a_greedy_tenant_is_refused_and_the_light_ones_are_served() -> None:
    greedy = poisson(21.0, 60.0, random.Random(10), tenant="greedy")
    fates = run(together(light(1), greedy)).after(WARM_S)
    served = Fates(all=[fate for fate in fates.all if fate.wish.tenant != "greedy"])
    loud = fates.of("greedy")

    assert served.num_good(TTFT_S, TPOT_S) >= 0.96 * len(served.all)
    assert served.ttft_s(0.5) <= 2 * run(light(1)).after(WARM_S).ttft_s(0.5)
    assert len(loud.refused) > 0.4 * len(loud.all)
    assert sum(fate.reason == "tenant_share" for fate in loud.refused) > 0.7 * len(loud.refused)


def test_short_requests_are_served_while_long_ones_flood() -> None:
    short = poisson(4.0, 60.0, random.Random(2), spread=0.3)
    long = poisson(6.0, 60.0, random.Random(7), prompt_tokens=3000, spread=0.1, output_tokens=60)
    fates = run(together(short, long), LANES).after(WARM_S)
    lanes = {name: Fates(all=[fate for fate in fates.all if fate.lane == name]) for name in ("interactive", "long")}

    assert lanes["interactive"].num_good(TTFT_S, TPOT_S) >= 0.97 * len(lanes["interactive"].all)
    assert len(lanes["long"].admitted) > 50
    assert lanes["long"].ttft_s(0.9) <= 4.0


def test_nothing_is_refused_where_nobody_stated_how_long_is_too_long() -> None:
    wishes = poisson(3 * CAPACITY_PER_S, 10.0, random.Random(5))
    fates = run(wishes, POLICY.replace(", slo: {ttft_p95_ms: 500, tpot_p95_ms: 40}", ""))

    assert fates.refused == []

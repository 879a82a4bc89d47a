"""The steps of `overload` in virtual time: what the gateway makes of them where no machine is in the way."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from loadtests.clients.chat_streams import Slo
from loadtests.engines.modelled_engine import EngineShape
from loadtests.harness.card import Card, Value
from loadtests.harness.measures import percentile
from loadtests.overload.held_rate import GOOD_SHARE, highest_held
from loadtests.overload.overload import STEPS, starting_rate
from loadtests.overload.workload import Lengths, Offer, poisson_offers
from loadtests.simulation.simulation import Outcome, Simulation, in_virtual_time

_WARM_UP_S = 6.0
_TRIAL_S = 30.0
"""Of a rate that may be the capacity."""
_OVER = (2.0, 5.0, 10.0)


def outcomes(
    shape: EngineShape,
    slo: Slo,
    capacity_per_s: float,
    step_s: float,
    seed: int,
    *,
    is_silent: bool = False,
    factors: Sequence[float] = STEPS,
) -> list[Outcome]:
    """What became of each step's requests; runs its own loop. Raises RuntimeError for a failure of the gateway.

    `factors`: of each step, how many times the capacity is offered.
    """

    async def main(folder: Path) -> list[Outcome]:
        simulation = Simulation(shape, 1, slo, folder, seed)
        if not is_silent:
            simulation.publish_loads()
        rng = random.Random(seed)
        await simulation.run(poisson_offers(capacity_per_s / 4, _WARM_UP_S, rng, Lengths()))
        steps = [Outcome() for _ in factors]
        await simulation.run(_offers(capacity_per_s, step_s, rng, factors), by_tenant=dict(enumerate(steps)))
        if (failure := simulation.close()) is not None:
            raise RuntimeError(failure)
        return steps

    return in_virtual_time(main)


def find_capacity(shape: EngineShape, slo: Slo, seed: int, *, is_silent: bool = False) -> float:
    """The highest rate per second found that one engine answers in time; runs its own loops."""

    async def is_held(rate_per_s: float) -> bool:
        [found] = await asyncio.to_thread(
            outcomes, shape, slo, rate_per_s, _TRIAL_S, seed, is_silent=is_silent, factors=(1.0,)
        )
        return found.num_good >= GOOD_SHARE * found.num_offered

    return asyncio.run(highest_held(is_held, starting_rate(shape)))


def _offers(capacity_per_s: float, step_s: float, rng: random.Random, factors: Sequence[float]) -> list[Offer]:
    """Step after step without a pause. Nobody authenticates, so the number of the step can stand for the tenant."""
    found: list[Offer] = []
    for number, factor in enumerate(factors):
        drawn = poisson_offers(factor * capacity_per_s, step_s, rng, Lengths(), tenant=number)
        found += [replace(offer, at_s=offer.at_s + number * step_s) for offer in drawn]
    return found


def run_overload(options: argparse.Namespace, shape: EngineShape, slo: Slo, capacity_per_s: float) -> Card:
    """Medians over several seeds, each of them with every step."""
    step_s, seeds = options.seconds / len(STEPS), range(options.seed, options.seed + (options.seeds or 3))
    runs = [outcomes(shape, slo, capacity_per_s, step_s, seed, is_silent=options.silent) for seed in seeds]
    results: dict[str, Value] = {}
    for factor in _OVER:
        at = [dict(zip(STEPS, run, strict=False)) for run in runs]
        goodput_ratios = [one[factor].num_good / max(1, one[1.0].num_good) for one in at]
        results[f"goodput_{factor:g}x"] = statistics.median(goodput_ratios)
        results[f"refuse_{factor:g}x_p99_ms"] = max(percentile(one[factor].refused_s, 0.99) * 1e3 for one in at)
    worst = max(percentile(one.ttft_s, 0.99) for run in runs for one in run[1:-1])
    results["admitted_ttft_p99_ratio"] = worst / slo.ttft_s
    return Card(
        bench="simulate",
        arrivals=f"overload, open loop, Poisson, {len(seeds)} seeds of {options.seconds:g} s each, virtual time",
        results=results,
        notes=(
            *(f"seed {seed}: {line}" for seed, run in zip(seeds, runs, strict=True) for line in _lines(run, step_s)),
            f"goodput: the median seed; the rest: the worst. Engine: modelled, {shape}",
        ),
    )


def _lines(run: Sequence[Outcome], step_s: float) -> list[str]:
    return [f"{factor:4g} x  {outcome.summary(step_s)}" for factor, outcome in zip(STEPS, run, strict=True)]

"""A greedy tenant or a flood of long prompts in virtual time: how those fare who are not the trouble."""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loadtests.clients.chat_streams import Slo
from loadtests.engines.modelled_engine import EngineShape
from loadtests.harness.card import Card, Value
from loadtests.harness.measures import percentile
from loadtests.overload import troubles
from loadtests.overload.troubles import Trouble
from loadtests.overload.workload import Offer
from loadtests.simulation.simulation import Outcome, Simulation, in_virtual_time

SCENARIOS: Final = {
    "greedy": ("greedy_quiet_goodput", "greedy_quiet_ttft_p99_ratio"),
    "flood": ("flood_short_goodput", "flood_short_ttft_p99_ratio"),
}
"""What each of them measures: the share of good answers, and p99 of the first token over what it is alone."""
_WARM_UP_S = 5.0
_WARM_UP_REQUESTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Fares:
    """One seed of one scenario."""

    goodput: float
    ttft_p99_ratio: float
    note: str


def trouble_of(name: str, shape: EngineShape, slo: Slo, capacity_per_s: float, seconds: float, seed: int) -> Trouble:
    """The workload of a scenario."""
    if name == "greedy":
        return troubles.greedy_tenant(capacity_per_s, seconds, seed, slo)
    return troubles.long_flood(capacity_per_s, seconds, seed, shape, slo)


def fares(trouble: Trouble, shape: EngineShape, slo: Slo, seed: int, *, is_silent: bool) -> Fares:
    """Run it without the trouble and with it."""
    alone, _ = _run(trouble, trouble.alone, shape, slo, seed, is_silent=is_silent)
    beside, loud = _run(trouble, trouble.beside, shape, slo, seed, is_silent=is_silent)
    first_ms, then_ms = percentile(alone.ttft_s, 0.99) * 1e3, percentile(beside.ttft_s, 0.99) * 1e3
    return Fares(
        goodput=beside.num_good / max(1, beside.num_offered),
        ttft_p99_ratio=then_ms / max(1e-9, first_ms),
        note=(
            f"seed {seed}: {beside.num_offered} requests, p99 {first_ms:.0f} ms alone, {then_ms:.0f} ms beside; of the "
            f"{loud.num_offered} loud ones {loud.num_good} good by their own target, {loud.num_refused} refused"
        ),
    )


def run_scenario(options: argparse.Namespace, shape: EngineShape, slo: Slo, capacity_per_s: float) -> Card:
    """Medians over several seeds; runs its own loops."""
    name, seeds = options.scenario, range(options.seed, options.seed + (options.seeds or 3))
    found = []
    for seed in seeds:
        trouble = trouble_of(name, shape, slo, capacity_per_s, options.seconds, seed)
        found.append(fares(trouble, shape, slo, seed, is_silent=options.silent))
    goodput, ratio = SCENARIOS[name]
    results: dict[str, Value] = {
        goodput: statistics.median(one.goodput for one in found),
        ratio: statistics.median(one.ttft_p99_ratio for one in found),
        f"{ratio}_worst": max(one.ttft_p99_ratio for one in found),
    }
    return Card(
        bench="simulate",
        arrivals=f"{name}, open loop, Poisson, {len(seeds)} seeds of {options.seconds:g} s each, virtual time",
        results=results,
        notes=(*(one.note for one in found), f"engine: modelled, {shape}{', silent' if options.silent else ''}"),
    )


def _run(
    trouble: Trouble, offers: list[Offer], shape: EngineShape, slo: Slo, seed: int, *, is_silent: bool
) -> tuple[Outcome, Outcome]:
    """(those that are not the trouble, the trouble), after a warm-up with a little of the same mix."""

    async def main(folder: Path) -> tuple[Outcome, Outcome]:
        simulation = Simulation(shape, 1, slo, folder, seed, policy=trouble.policy, keys=trouble.keys)
        if not is_silent:
            simulation.publish_loads()
        early = [offer for offer in offers if offer.at_s < _WARM_UP_S]
        await simulation.run(early[:: max(1, len(early) // _WARM_UP_REQUESTS)])
        loud = Outcome(ttft_slo_s=trouble.loud_ttft_s)
        light = await simulation.run(offers, by_tenant={trouble.loud: loud})
        if (failure := simulation.close()) is not None:
            raise RuntimeError(failure)
        return light, loud

    return in_virtual_time(main)

"""The gateway's own request path in virtual time, in front of modelled engines: loads that no machine here can make.

From the parsed request to the last byte it is the code that serves: prices, lanes, gate, queues, limits, routing,
forecasts, retries and relay. Only the sockets, the clock and the engines are simulated, which is why this bench, alone
among them, imports the gateway. The same seed gives the same run. With `--against-real` the same requests are offered
to a real gateway and engine processes in real time, and the goodput of both is compared.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
from collections.abc import Iterator
from pathlib import Path

from loadtests.clients.chat_streams import OfferClient, Slo, Tally
from loadtests.engines.engine_server import add_shape_arguments, shape_of
from loadtests.engines.modelled_engine import EngineShape
from loadtests.harness.card import Card, Value
from loadtests.harness.measures import percentile
from loadtests.harness.processes import Workbench, raise_fd_limit, split_cores
from loadtests.harness.stack import start_gateway_with, start_model_engines
from loadtests.overload.overload import overload_policy
from loadtests.overload.workload import TRACES, Lengths, Offer, poisson_offers
from loadtests.simulation.simulated_faults import run_faults
from loadtests.simulation.simulated_overload import find_capacity, run_overload
from loadtests.simulation.simulated_replay import run_replay
from loadtests.simulation.simulated_troubles import SCENARIOS, run_scenario
from loadtests.simulation.simulation import Outcome, Simulation, in_virtual_time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--requests", type=int, default=20_000, help="to offer (default %(default)s)")
    parser.add_argument("--engines", type=int, default=10, help="deployments (default %(default)s)")
    parser.add_argument("--load", type=float, default=2.0, help="times the engines' capacity (default %(default)s)")
    parser.add_argument(
        "--capacity", type=float, help="requests per s that one engine answers in time (default: searched for)"
    )
    parser.add_argument("--ttft-ms", type=float, default=500.0, help="first-token target (default %(default)s)")
    parser.add_argument("--tpot-ms", type=float, default=30.0, help="per-token target (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of everything (default %(default)s)")
    parser.add_argument("--silent", action="store_true", help="engines that do not publish their load")
    parser.add_argument("--scenario", choices=("overload", "faults", *SCENARIOS), help="instead of a load")
    parser.add_argument("--replay", choices=tuple(TRACES), help="a recorded trace, instead of a load (with --data)")
    parser.add_argument("--data", type=Path, default=Path(), help="folder with the traces")
    parser.add_argument("--seconds", type=float, default=60.0, help="each part of a scenario (default %(default)s)")
    parser.add_argument("--seeds", type=int, help="of a scenario (default: 3, which give medians; of faults 2,000)")
    parser.add_argument("--per-seed", type=int, default=10, help="requests of a seed of faults (default %(default)s)")
    parser.add_argument("--jobs", type=int, help="processes for the seeds of faults (default: one for each core)")
    parser.add_argument("--against-real", action="store_true", help="offer the same to real processes as well")
    add_shape_arguments(parser)


def _first(offers: Iterator[Offer], count: int) -> Iterator[Offer]:
    return (offer for offer, _ in zip(offers, range(count), strict=False))


def simulate(options: argparse.Namespace, slo: Slo, rate_per_s: float) -> tuple[Outcome, float]:
    """(the outcome, virtual seconds over which the requests were offered); runs its own loop."""
    shape = shape_of(options)

    async def main(folder: Path) -> Outcome:
        simulation = Simulation(shape, options.engines, slo, folder, options.seed)
        if not options.silent:
            simulation.publish_loads()
        await simulation.run(_first(_warm_up(rate_per_s, options.seed), min(2000, options.requests // 2)))
        outcome = await simulation.run(_offers(options, rate_per_s))
        outcome.failure = simulation.close()
        return outcome

    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    return in_virtual_time(main), options.requests / rate_per_s


def _offers(options: argparse.Namespace, rate_per_s: float) -> Iterator[Offer]:
    drawn = poisson_offers(rate_per_s, float("inf"), random.Random(options.seed), Lengths())
    return _first(drawn, options.requests)


def _warm_up(rate_per_s: float, seed: int) -> Iterator[Offer]:
    """A third of the rate, so that forecasts know the mix."""
    return poisson_offers(rate_per_s / 6, float("inf"), random.Random(f"warm:{seed}"), Lengths())


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    slo = Slo(ttft_s=options.ttft_ms / 1e3, tpot_s=options.tpot_ms / 1e3)
    shape = shape_of(options)
    if options.replay is not None:
        return await asyncio.to_thread(run_replay, options, shape, slo)
    if options.scenario == "faults":
        return await run_faults(options)
    capacity = options.capacity or await asyncio.to_thread(
        find_capacity, shape, slo, options.seed, is_silent=options.silent
    )
    if options.scenario == "overload":
        return await asyncio.to_thread(run_overload, options, shape, slo, capacity)
    if options.scenario is not None:
        return await asyncio.to_thread(run_scenario, options, shape, slo, capacity)
    rate = options.load * capacity * options.engines
    outcome, span_s = await asyncio.to_thread(simulate, options, slo, rate)
    results: dict[str, Value] = {
        "requests": outcome.num_offered,
        "engines": options.engines,
        "capacity_per_engine": capacity,
        "virtual_s": span_s,
        "wall_s": outcome.wall_s,
        "cpu_us_per_request": outcome.cpu_s * 1e6 / max(1, outcome.num_offered),
        "good_share": outcome.num_good / max(1, outcome.num_offered),
        "goodput_per_s": outcome.num_good / span_s,
        "goodput_of_capacity": outcome.num_good / span_s / (capacity * options.engines),
        "refused_share": outcome.num_refused / max(1, outcome.num_offered),
        "admitted_ttft_p99_ratio": percentile(outcome.ttft_s, 0.99) / slo.ttft_s,
        "failed_requests": outcome.num_failed,
    }
    notes = [f"engine: modelled, {shape_of(options)}{', silent' if options.silent else ''}"]
    if options.against_real:
        real = await _real(options, slo, rate, span_s)
        results["real_goodput_per_s"] = real.goodput_per_s
        results["agreement_ratio"] = outcome.num_good / span_s / max(1e-9, real.goodput_per_s)
        notes.append(f"real run: {real}")
    return Card(
        bench="simulate",
        arrivals=f"open loop, Poisson, {rate:.1f} per s, {options.load:g} x capacity, virtual time",
        results=results,
        notes=tuple(notes),
        failed=outcome.failure,
    )


async def _real(options: argparse.Namespace, slo: Slo, rate_per_s: float, span_s: float) -> Tally:
    """The same requests in real time, against processes."""
    raise_fd_limit()
    gateway_cores, other_cores = split_cores()
    async with Workbench() as bench:
        shape: EngineShape = shape_of(options)
        engines = await start_model_engines(bench, shape, options.engines, is_silent=options.silent, cores=other_cores)
        policy = overload_policy([engine.admin.url for engine in engines], slo)
        gateway = await start_gateway_with(bench, policy, cores=gateway_cores)
        client = OfferClient(gateway.address)
        warm = list(_first(_warm_up(rate_per_s, options.seed), min(200, options.requests // 2)))
        await client.run(warm, first_number=options.requests)
        served = await client.run(list(_offers(options, rate_per_s)))
    return Tally.of(served, slo, span_s)

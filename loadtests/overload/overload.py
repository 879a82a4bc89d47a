"""What is left of the good answers when far more is called than can be answered: goodput at 2, 5 and 10 times capacity.

Open loop: a request is due at its instant whatever became of the others, and every share is of all that were offered.
Capacity is searched for: the highest rate at which 99 % of the requests meet the lane's targets. Then steps of 0.5, 1,
2, 5 and 10 times that rate, and back to 0.5, without a pause between them. The engine is the modelled one unless
`--engine` names a real one's URL.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from loadtests.clients.chat_streams import OfferClient, Served, Slo, Tally
from loadtests.clients.http_client import Address
from loadtests.engines.engine_server import add_shape_arguments, shape_of
from loadtests.engines.modelled_engine import EngineShape
from loadtests.harness.card import Card, Value
from loadtests.harness.measures import percentile
from loadtests.harness.processes import Workbench, raise_fd_limit, split_cores
from loadtests.harness.stack import metric, start_gateway_with, start_model_engines
from loadtests.overload.held_rate import GOOD_SHARE, highest_held
from loadtests.overload.workload import Lengths, poisson_offers

STEPS = (0.5, 1.0, 2.0, 5.0, 10.0, 0.5)
_SEARCH_S = 6.0
_WARM_UP_S = 6.0
_RECOVERED = 1.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--seconds", type=float, default=60.0, help="all steps together (default %(default)s)")
    parser.add_argument("--rate", type=float, help="capacity in requests per s, instead of searching for it")
    parser.add_argument("--ttft-ms", type=float, default=500.0, help="first-token target (default %(default)s)")
    parser.add_argument("--tpot-ms", type=float, default=30.0, help="per-token target (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and lengths (default %(default)s)")
    parser.add_argument("--silent", action="store_true", help="an engine that does not publish its load")
    parser.add_argument("--unprotected", action="store_true", help="without targets and limits, to compare with")
    parser.add_argument("--requests-out", type=Path, metavar="FILE", help="write one JSON line for every request")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report with plots")
    add_shape_arguments(parser)


def unprotected_policy(urls: Sequence[str], *, select: str = "least_in_flight") -> dict[str, object]:
    """One route over the given servers; everything that comes is passed on."""
    deployments = [
        {"id": f"engine{number}", "url": url, "model": "scripted", "limits": {"max_in_flight": 4096}}
        for number, url in enumerate(urls)
    ]
    names = [deployment["id"] for deployment in deployments]
    chosen = {"policy": select, "candidates": names}
    route = {"id": "all", "match": {"models": ["scripted", "auto"]}, "select": chosen}
    return {"schema_version": 1, "deployments": deployments, "routes": [route]}


def overload_policy(urls: Sequence[str], slo: Slo) -> dict[str, object]:
    """The same with lanes that have targets, and with shedding as the only thing to do about overload."""
    targets = {"ttft_p95_ms": round(slo.ttft_s * 1e3), "tpot_p95_ms": round(slo.tpot_s * 1e3)}
    lanes = [
        {"id": "interactive", "weight": 8, "slo": targets, "on_overload": ["shed"]},
        {"id": "batch", "weight": 1, "slo": {"ttft_p95_ms": 20_000}, "on_overload": ["shed"]},
    ]
    return {**unprotected_policy(urls, select="latency_first"), "lanes": lanes}


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    slo = Slo(ttft_s=options.ttft_ms / 1e3, tpot_s=options.tpot_ms / 1e3)
    gateway_cores, other_cores = split_cores()
    async with Workbench() as bench:
        shape = shape_of(options)
        engines = await start_model_engines(bench, shape, is_silent=options.silent, cores=other_cores)
        urls = [engine.admin.url for engine in engines]
        policy = unprotected_policy(urls) if options.unprotected else overload_policy(urls, slo)
        gateway = await start_gateway_with(bench, policy, cores=gateway_cores)
        if other_cores is not None:
            os.sched_setaffinity(0, other_cores)
        offering = Offering(gateway.address, slo, random.Random(options.seed))
        await offering.step(starting_rate(shape) / 4, _WARM_UP_S)
        capacity = options.rate or await offering.find_capacity(starting_rate(shape))
        made_before = await metric(engines[0].admin, "model_tokens_made_total")
        wasted_before = await metric(engines[0].admin, "model_tokens_wasted_total")
        cpu_before = gateway.process.cpu_s()
        step_s = options.seconds / len(STEPS)
        steps = await offering.steps([capacity * factor for factor in STEPS], step_s)
        cpu_s = gateway.process.cpu_s() - cpu_before
        made = await metric(engines[0].admin, "model_tokens_made_total") - made_before
        wasted = await metric(engines[0].admin, "model_tokens_wasted_total") - wasted_before
        left = await metric(engines[0].admin, "model_open")
        left += await metric(gateway.admin, "penstock_in_flight")
    if options.requests_out is not None:
        lines = (one.as_line(slo) for served in steps for one in served)
        options.requests_out.write_text("\n".join(lines) + "\n")
    report = Report(slo=slo, capacity_per_s=capacity, step_s=step_s, steps=steps)
    if options.html is not None:
        from loadtests.overload.html_report import write_overload_report

        write_overload_report(options.html, report.tallies(), STEPS, steps, slo)
    return report.card(options, shape, wasted / max(1.0, made), cpu_s, int(left))


def starting_rate(shape: EngineShape) -> float:
    """Requests per second that the model would finish with every row busy, prefill counted."""
    lengths, rng = Lengths(), random.Random(0)
    drawn = [lengths.draw(rng) for _ in range(2000)]
    prompt = sum(one for one, _ in drawn) / len(drawn)
    output = sum(two for _, two in drawn) / len(drawn)
    return 1.0 / (output / shape.tokens_per_s() + prompt * shape.prefill_us / 1e6)


class Offering:
    """Offers Poisson steps to one gateway and keeps the count of what was offered."""

    def __init__(self, address: Address, slo: Slo, rng: random.Random) -> None:
        self._client = OfferClient(address)
        self._address = address
        self._slo = slo
        self._rng = rng
        self._lengths = Lengths()
        self._num_offered = 0

    async def step(self, rate_per_s: float, seconds: float) -> list[Served]:
        """One step; the requests still under way at its end are waited for."""
        [served] = await self.steps([rate_per_s], seconds)
        return served

    async def steps(self, rates_per_s: Sequence[float], seconds: float) -> list[list[Served]]:
        """Steps of equal length, each beginning while the last one's requests are still under way."""
        steps = []
        for number, rate_per_s in enumerate(rates_per_s):
            drawn = poisson_offers(rate_per_s, seconds, self._rng, self._lengths)
            steps.append([replace(offer, at_s=offer.at_s + number * seconds) for offer in drawn])
        offers = [offer for step in steps for offer in step]
        served = await self._client.run(offers, first_number=self._num_offered, drain_s=30.0)
        self._num_offered += len(offers)
        ends = list(accumulate(map(len, steps)))
        return [served[end - len(step) : end] for step, end in zip(steps, ends, strict=True)]

    async def find_capacity(self, start: float) -> float:
        """The highest rate found at which `GOOD_SHARE` of the requests are good."""
        return await highest_held(self._is_held, start)

    async def _is_held(self, rate_per_s: float) -> bool:
        served = await self.step(rate_per_s, _SEARCH_S)
        return Tally.of(served, self._slo, _SEARCH_S).good_share >= GOOD_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The steps of one run."""

    slo: Slo
    capacity_per_s: float
    step_s: float
    steps: Sequence[list[Served]]

    def tallies(self) -> list[Tally]:
        """Every step in numbers, in order."""
        return [Tally.of(served, self.slo, self.step_s) for served in self.steps]

    def recovery_s(self) -> float:
        """Seconds into the last step after which p99 of the first token is back under 1.1 times the first step's."""
        baseline = percentile([one.ttft_s for one in self.steps[0] if one.is_admitted], 0.99)
        last, began_at = self.steps[-1], (len(self.steps) - 1) * self.step_s
        for index, one in enumerate(last):
            rest = [other.ttft_s if other.is_admitted else float("inf") for other in last[index:]]
            if percentile(rest, 0.99) <= _RECOVERED * baseline:
                return one.offer.at_s - began_at if index else 0.0
        return self.step_s

    def card(
        self, options: argparse.Namespace, shape: EngineShape, wasted_ratio: float, cpu_s: float, num_left: int
    ) -> Card:
        """The result."""
        tallies = self.tallies()
        at = dict(zip(STEPS, tallies, strict=False))  # of the two half steps the first
        at[0.5] = tallies[0]
        base = at[1.0].goodput_per_s
        over = [at[factor] for factor in (2.0, 5.0, 10.0)]
        num_requests = sum(tally.num_offered for tally in tallies)
        results: dict[str, Value] = {
            "capacity_per_s": self.capacity_per_s,
            "goodput_2x": at[2.0].goodput_per_s / base if base else 0.0,
            "goodput_5x": at[5.0].goodput_per_s / base if base else 0.0,
            "goodput_10x": at[10.0].goodput_per_s / base if base else 0.0,
            "admitted_ttft_p99_ratio": max(tally.admitted_ttft_p99_ms for tally in over) / (self.slo.ttft_s * 1e3),
            "refuse_p99_ms": at[10.0].refuse_p99_ms,
            "refuse_2x_p99_ms": at[2.0].refuse_p99_ms,
            "wasted_ratio": wasted_ratio,
            "recovery_s": self.recovery_s(),
            "cpu_us_per_request": cpu_s * 1e6 / max(1, num_requests),
            "failed_requests": sum(tally.num_failed for tally in tallies),
        }
        problem = f"{num_left} requests are still open" if num_left else None
        if not base:
            problem = "no request was good at capacity"
        notes = [f"{factor:4g} x  {tally}" for factor, tally in zip(STEPS, tallies, strict=True)]
        return Card(
            bench="overload",
            arrivals=f"open loop, Poisson, steps {', '.join(f'{factor:g}' for factor in STEPS)} x capacity",
            results=results,
            notes=(*notes, f"engine: modelled, {shape}{', silent' if options.silent else ''}"),
            failed=problem,
        )

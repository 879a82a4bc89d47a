"""Kinds of trouble, one after another: a greedy tenant, a flood of long prompts, a brown-out, leaving clients, retries.

Each scenario offers the same kind of traffic with and without its trouble, in one run, against modelled engines behind
the gateway. `--capacity` is what one engine can answer in time (`penstock bench overload` finds it); loads are stated
as multiples of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from loadtests.clients.chat_streams import OfferClient, Served, Slo, Tally
from loadtests.clients.http_client import Address, LoadConnection, fetch, request_bytes
from loadtests.clients.sdk_clients import RetryTally, offer_with_retries
from loadtests.engines.engine_server import add_shape_arguments, shape_of
from loadtests.engines.modelled_engine import EngineShape
from loadtests.harness.card import Card, Value
from loadtests.harness.measures import percentile
from loadtests.harness.processes import Workbench, raise_fd_limit, split_cores
from loadtests.harness.stack import Server, metric, start_gateway_with, start_model_engines
from loadtests.overload import troubles
from loadtests.overload.overload import overload_policy, starting_rate
from loadtests.overload.troubles import Trouble
from loadtests.overload.workload import Lengths, Offer, leaving, poisson_offers

_WARM_UP_S = 5.0
_BROWN_OUT = 10.0
_SETTLE_S = 2.0
_SDK_SEQS_DIVISOR = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--only", choices=tuple(SCENARIOS), help="run just one")
    parser.add_argument("--seconds", type=float, default=15.0, help="each part (default %(default)s)")
    parser.add_argument("--capacity", type=float, help="requests per s that one engine answers in time")
    parser.add_argument("--ttft-ms", type=float, default=500.0, help="first-token target (default %(default)s)")
    parser.add_argument("--tpot-ms", type=float, default=30.0, help="per-token target (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and lengths (default %(default)s)")
    add_shape_arguments(parser)


@dataclass(slots=True, kw_only=True)
class Scene:
    """What a scenario plays with."""

    slo: Slo
    seconds: float
    capacity_per_s: float
    shape: EngineShape
    seed: int
    cores: tuple[set[int] | None, set[int] | None]
    notes: list[str] = field(default_factory=list)
    num_offered: int = 0

    def with_seqs(self, max_num_seqs: int) -> Scene:
        """The same in front of a smaller engine, at a capacity that has shrunk as the engine's start value did."""
        shape = replace(self.shape, max_num_seqs=max_num_seqs)
        part = starting_rate(shape) / starting_rate(self.shape)
        return replace(self, shape=shape, capacity_per_s=part * self.capacity_per_s)

    def rng(self) -> random.Random:
        """The same arrivals for the part with the trouble and the part without."""
        return random.Random(self.seed)

    async def build(
        self, bench: Workbench, *, engines: int = 1, policy: Mapping[str, object] | None = None
    ) -> tuple[list[Server], Server]:
        """(the engines, the gateway in front of them), warmed up."""
        gateway_cores, other_cores = self.cores
        upstreams = await start_model_engines(bench, self.shape, engines, cores=other_cores)
        document = {**overload_policy([upstream.admin.url for upstream in upstreams], self.slo), **(policy or {})}
        return upstreams, await start_gateway_with(bench, document, cores=gateway_cores)

    def stream(self, load: float, lengths: Lengths | None = None, *, tenant: int = 0, seed: int = 0) -> list[Offer]:
        """Requests at so many times the capacity."""
        rng = random.Random(f"{self.seed}:{seed}")
        rate = load * self.capacity_per_s
        return list(poisson_offers(rate, self.seconds, rng, lengths or Lengths(), tenant=tenant))

    async def warm_up(self, address: Address, offers: Sequence[Offer], keys: Mapping[int, str]) -> None:
        """A little of the same mix, so that forecasts know it."""
        client = OfferClient(address)
        client.keys = keys
        early = [offer for offer in offers if offer.at_s < _WARM_UP_S and offer.leaves_after_s is None]
        await client.run(early[:: max(1, len(early) // 60)], first_number=self._take(120), drain_s=10.0)
        await client.aclose()

    async def offer(
        self, address: Address, offers: Sequence[Offer], *, keys: Mapping[int, str] | None = None
    ) -> list[Served]:
        """Offer them, after a warm-up."""
        await self.warm_up(address, offers, keys or {})
        client = OfferClient(address)
        client.keys = keys or {}
        return await client.run(offers, first_number=self._take(len(offers)), drain_s=20.0)

    def tally(self, name: str, served: Sequence[Served], slo: Slo | None = None) -> Tally:
        """The numbers of one part, by its own targets or the scene's; stored as a note."""
        tally = Tally.of(served, slo or self.slo, self.seconds)
        self.notes.append(f"{name:<26} {tally}")
        return tally

    def _take(self, count: int) -> int:
        self.num_offered += count
        return self.num_offered - count


async def greedy_tenant(scene: Scene) -> dict[str, Value]:
    """One tenant brings 85 % of twice the capacity; the others must not notice."""
    trouble = troubles.greedy_tenant(scene.capacity_per_s, scene.seconds, scene.seed, scene.slo)
    alone, beside, loud = await _with_and_without(scene, trouble, "light tenants")
    return {
        "greedy_quiet_goodput": beside.good_share,
        "greedy_quiet_ttft_p99_ratio": beside.admitted_ttft_p99_ms / max(1e-9, alone.admitted_ttft_p99_ms),
        "greedy_loud_goodput": loud.good_share,
    }


async def long_flood(scene: Scene) -> dict[str, Value]:
    """Short requests at a third of the capacity while prompts of 3,000 tokens come in at more than the engine reads."""
    trouble = troubles.long_flood(scene.capacity_per_s, scene.seconds, scene.seed, scene.shape, scene.slo)
    alone, flooded, long = await _with_and_without(scene, trouble, "short requests")
    return {
        "flood_short_ttft_p99_ratio": flooded.admitted_ttft_p99_ms / max(1e-9, alone.admitted_ttft_p99_ms),
        "flood_short_goodput": flooded.good_share,
        "flood_long_goodput": long.good_share,
    }


async def _with_and_without(scene: Scene, trouble: Trouble, whose: str) -> tuple[Tally, Tally, Tally]:
    """How those fare who are not the trouble: alone, and beside it; and how the trouble fares, by its own target."""
    tallies = []
    for name, offers in ((f"{whose} alone", trouble.alone), (f"{whose} in trouble", trouble.beside)):
        async with Workbench() as bench:
            _, gateway = await scene.build(bench, policy=trouble.policy)
            served = await scene.offer(gateway.address, offers, keys=trouble.keys)
        tallies.append(scene.tally(name, [one for one in served if one.offer.tenant != trouble.loud]))
        if offers is trouble.beside:
            own = replace(scene.slo, ttft_s=trouble.loud_ttft_s)
            tallies.append(
                scene.tally("the trouble itself", [one for one in served if one.offer.tenant == trouble.loud], own)
            )
    return tallies[0], tallies[1], tallies[2]


async def brown_out(scene: Scene) -> dict[str, Value]:
    """Three engines at 2.2 times one's capacity; one becomes ten times slower a third into the run."""
    offers = scene.stream(2.2)
    begins_s = scene.seconds / 3
    async with Workbench() as bench:
        engines, gateway = await scene.build(bench, engines=3)
        await scene.warm_up(gateway.address, offers, {})
        loop = asyncio.get_running_loop()
        slowing = loop.create_task(_slow_down(engines[0].admin, begins_s))
        served = await OfferClient(gateway.address).run(offers, drain_s=20.0)
        await slowing
    after = [one for one in served if one.offer.at_s >= begins_s + _SETTLE_S]
    span_s = scene.seconds - begins_s - _SETTLE_S
    tally = Tally.of(after, scene.slo, span_s)
    scene.notes.append(f"{'2 s after a brown-out':<26} {tally}")
    return {"brownout_goodput": tally.goodput_per_s / (2 * scene.capacity_per_s)}


async def _slow_down(engine: Address, after_s: float) -> None:
    await asyncio.sleep(after_s)
    connection = await LoadConnection.open(engine)
    await connection.exchange(request_bytes("POST", "/slowdown", str(_BROWN_OUT).encode()))
    connection.close()


async def leaving_clients(scene: Scene) -> dict[str, Value]:
    """A tenth, a third and a half of the clients leave within their first second, at the engine's capacity."""
    results: dict[str, Value] = {}
    for share in (0.1, 0.3, 0.5):
        async with Workbench() as bench:
            engines, gateway = await scene.build(bench)
            offers = list(leaving(scene.stream(1.0), share, 1.0, scene.rng()))
            served = await scene.offer(gateway.address, offers)
            _, text = await fetch(engines[0].admin, "/aborts")
            made = await metric(engines[0].admin, "model_tokens_made_total")
            left = await metric(engines[0].admin, "model_open") + await metric(gateway.admin, "penstock_in_flight")
        aborted_at = {number: at for number, at, _ in json.loads(text)}
        delays = [aborted_at[one.number] - one.left_at for one in served if one.left_at and one.number in aborted_at]
        wasted = sum(max(0.0, delay) / scene.shape.step_s(scene.shape.max_num_seqs // 2, 0) for delay in delays)
        stayed = scene.tally(f"{share:.0%} leave: who stayed", [one for one in served if not one.left_at])
        key = f"cancel_{round(100 * share)}"
        results[f"{key}_goodput"] = stayed.good_share
        results[f"{key}_wasted_ratio"] = wasted / max(1.0, made)
        results[f"{key}_abort_p99_ms"] = percentile(delays, 0.99) * 1e3
        results[f"{key}_left_open"] = left
    return results


async def retry_storm(scene: Scene) -> dict[str, Value]:
    """Real SDK clients that retry twice, at three times the capacity: what is required of the engine, what is answered.

    The engine is a small one: an SDK takes many times what this project's clients take to read a stream, and three
    times the capacity of a large one is more than it can request.
    """
    scene = scene.with_seqs(max(1, scene.shape.max_num_seqs // _SDK_SEQS_DIVISOR))
    rate = 3.0 * scene.capacity_per_s
    async with Workbench() as bench:
        engines, gateway = await scene.build(bench)
        num_sent_before = await metric(engines[0].admin, "model_requests_total")
        tally: RetryTally = await offer_with_retries(
            gateway.address, rate, scene.seconds, scene.rng(), scene.slo, first_number=scene.num_offered
        )
        num_sent = await metric(engines[0].admin, "model_requests_total") - num_sent_before
        seen = await metric(gateway.admin, "penstock_requests_total")
        retries = await metric(gateway.admin, "penstock_client_retries_total")
    scene.notes.append(
        f"{'SDKs that retry':<26} {tally}; {seen:.0f} requests at the gateway, {retries:.0f} marked retries"
    )
    return {
        "retry_goodput": tally.num_good / scene.seconds / scene.capacity_per_s,
        "retry_good_share": tally.num_good / max(1, tally.num_offered),
        "retry_upstream_ratio": num_sent / max(1, tally.num_offered),
        "retry_gateway_ratio": seen / max(1, tally.num_offered),
        "retry_client_late_p99_ms": percentile(tally.late_s, 0.99) * 1e3,
    }


Scenario = Callable[[Scene], Awaitable[dict[str, Value]]]
SCENARIOS: dict[str, Scenario] = {
    "greedy": greedy_tenant,
    "flood": long_flood,
    "brownout": brown_out,
    "cancel": leaving_clients,
    "retries": retry_storm,
}


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    cores = split_cores()
    if cores[1] is not None:
        os.sched_setaffinity(0, cores[1])
    shape = shape_of(options)
    scene = Scene(
        slo=Slo(ttft_s=options.ttft_ms / 1e3, tpot_s=options.tpot_ms / 1e3),
        seconds=options.seconds,
        capacity_per_s=options.capacity or 0.8 * starting_rate(shape),
        shape=shape,
        seed=options.seed,
        cores=cores,
    )
    results: dict[str, Value] = {"capacity_per_s": scene.capacity_per_s}
    for name in [options.only] if options.only else SCENARIOS:
        results |= await SCENARIOS[name](scene)
    return Card(
        bench="scenarios",
        arrivals=f"open loop, Poisson, {options.seconds:g} s each, multiples of {scene.capacity_per_s:.1f} per s",
        results=results,
        notes=(*scene.notes, f"engine: modelled, {shape}"),
    )

"""A recorded trace through the gateway: its arrivals, lengths, tenants and shared prefixes, at a rate that fits.

Traces are not part of the project; `--data` names the folder that holds them. Order, mix and burstiness are the trace's
own, time is stretched to reach `--load` times the engine's capacity, and lengths are scaled to the context together.
"""

from __future__ import annotations

import argparse
import os
import random
import re
from pathlib import Path

from loadtests.clients.chat_streams import OfferClient, Slo, Tally
from loadtests.clients.http_client import Address, fetch
from loadtests.engines.engine_server import add_shape_arguments, shape_of
from loadtests.engines.modelled_engine import EngineShape
from loadtests.harness.card import Card, Value
from loadtests.harness.processes import Workbench, raise_fd_limit, split_cores
from loadtests.harness.stack import start_gateway_with, start_model_engines
from loadtests.overload.overload import overload_policy
from loadtests.overload.workload import TRACES, Offer, read_trace, scaled

_CONTEXT_TOKENS = 8192
_QUANTILE = re.compile(r'penstock_ttft_forecast_error_ratio\{[^}]*quantile="([0-9.]+)"[^}]*\} (\S+)')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--trace", choices=tuple(TRACES), default="azure-conv", help="which one (default %(default)s)")
    parser.add_argument("--data", type=Path, required=True, help="folder with the traces")
    parser.add_argument(
        "--load", type=float, default=0.8, help="of the modelled engine's capacity (default %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the replay (default %(default)s)")
    parser.add_argument("--engines", type=int, default=1, help="deployments behind the gateway (default %(default)s)")
    parser.add_argument("--ttft-ms", type=float, default=1000.0, help="first-token target (default %(default)s)")
    parser.add_argument("--tpot-ms", type=float, default=40.0, help="per-token target (default %(default)s)")
    parser.add_argument("--silent", action="store_true", help="engines that do not publish their load")
    parser.add_argument("--seed", type=int, default=1, help="of what the trace leaves open (default %(default)s)")
    parser.add_argument("--requests-out", type=Path, metavar="FILE", help="write one JSON line for every request")
    add_shape_arguments(parser)


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    slo = Slo(ttft_s=options.ttft_ms / 1e3, tpot_s=options.tpot_ms / 1e3)
    shape = shape_of(options)
    offers, rate = offers_of(
        options.trace, options.data, shape, options.load * options.engines, options.seconds, options.seed
    )
    gateway_cores, other_cores = split_cores()
    async with Workbench() as bench:
        engines = await start_model_engines(bench, shape, options.engines, is_silent=options.silent, cores=other_cores)
        policy = overload_policy([engine.admin.url for engine in engines], slo)
        gateway = await start_gateway_with(bench, policy, cores=gateway_cores)
        if other_cores is not None:
            os.sched_setaffinity(0, other_cores)
        client = OfferClient(gateway.address, max_tokens=2048)
        await client.run(warm_up(rate), first_number=len(offers))
        served = await client.run(offers)
        errors = await _forecast_errors(gateway.admin)
    if options.requests_out is not None:
        options.requests_out.write_text("\n".join(one.as_line(slo) for one in served) + "\n")
    tally = Tally.of(served, slo, options.seconds)
    results: dict[str, Value] = {
        "offered_per_s": len(offers) / options.seconds,
        "goodput_per_s": tally.goodput_per_s,
        "good_share": tally.good_share,
        "refused_share": tally.refused_share,
        "admitted_ttft_p99_ratio": tally.admitted_ttft_p99_ms / (slo.ttft_s * 1e3),
        "failed_requests": tally.num_failed,
        **errors,
    }
    synthetic = " (synthetic: drawn from recorded distributions)" if options.trace == "servegen" else ""
    return Card(
        bench="replay",
        arrivals=f"open loop, {options.trace}{synthetic}, {options.load:g} x capacity of {options.engines} engines",
        results=results,
        notes=(str(tally), f"engine: modelled, {shape}{', silent' if options.silent else ''}"),
    )


def offers_of(
    trace: str, data: Path, shape: EngineShape, load: float, seconds: float, seed: int
) -> tuple[list[Offer], float]:
    """(the trace's requests at `load` times one engine's capacity, their rate). Raises TraceMissing."""
    recorded = read_trace(trace, data, random.Random(seed))
    whole = scaled(recorded, seconds=1.0, rate_per_s=min(2000, len(recorded)), context_tokens=_CONTEXT_TOKENS)
    work_s = sum(one.output_tokens / shape.tokens_per_s() + one.prompt_tokens * shape.prefill_us / 1e6 for one in whole)
    rate = load * len(whole) / work_s
    return scaled(recorded, seconds=seconds, rate_per_s=rate, context_tokens=_CONTEXT_TOKENS), rate


def warm_up(rate_per_s: float) -> list[Offer]:
    """A few small requests beforehand, so that nothing is the very first."""
    return [Offer(at_s=number / rate_per_s, prompt_tokens=200, output_tokens=30) for number in range(40)]


async def _forecast_errors(admin: Address) -> dict[str, Value]:
    """|forecast - measured| / measured of first tokens, as the gateway itself keeps it; of several deployments the
    worst."""
    _, text = await fetch(admin, "/metrics")
    worst: dict[str, float] = {}
    for line in text.splitlines():
        found = _QUANTILE.match(line)
        if found:
            worst[found.group(1)] = max(worst.get(found.group(1), 0.0), float(found.group(2)))
    return {f"ttft_forecast_error_p{float(quantile) * 100:g}": value for quantile, value in sorted(worst.items())}

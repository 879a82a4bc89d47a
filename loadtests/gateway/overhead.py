"""What the gateway adds to a request, and how many requests one core of it carries.

Latency: one connection, one request at a time, blocks of requests straight to the upstream and through the gateway in
turn, so that both see the same machine. Throughput and CPU: 64 connections in a closed loop through the gateway.
Then Poisson arrivals at half that rate, timed from the scheduled instant. The gateway has one core; the client and
the scripted upstream, which does no work, share the others.
"""

from __future__ import annotations

import argparse
import os
import random
from dataclasses import dataclass

from loadtests.clients.closed_loop import LoopResult, run_closed_loop
from loadtests.clients.http_client import Address, LoadConnection, clock, request_bytes
from loadtests.clients.open_loop import OpenLoopResult, poisson_arrivals, run_open_loop
from loadtests.gateway.open_pages import measure_pages
from loadtests.gateway.tracing_cost import measure_tracing
from loadtests.harness.card import Card
from loadtests.harness.measures import Latencies
from loadtests.harness.processes import Workbench, raise_fd_limit, split_cores
from loadtests.harness.stack import Script, Server, chat_body, start_gateway, start_upstream

_BLOCK = 50
_PROMPT_CHARS = 320


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the whole run (default %(default)s)")
    parser.add_argument("--connections", type=int, default=64, help="of the closed loop (default %(default)s)")
    parser.add_argument("--tracing", action="store_true", help="only what log lines and traces cost, beside none")
    parser.add_argument("--pages", type=int, metavar="N", help="only what N open admin pages cost, beside none")
    parser.add_argument("--seed", type=int, default=1, help="of the arrivals (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    gateway_cores, other_cores = split_cores()
    if other_cores is not None:
        os.sched_setaffinity(0, other_cores)  # whatever is started without cores of its own inherits it
    async with Workbench() as bench:
        upstream = await start_upstream(bench, Script(), other_cores)
        if options.tracing:
            return await _tracing(upstream.admin.url, options, gateway_cores)
        gateway = await start_gateway(bench, upstream.admin.url, "scripted", cores=gateway_cores)
        request = request_bytes("POST", "/v1/chat/completions", chat_body("scripted", "x" * _PROMPT_CHARS))
        if options.pages is not None:
            return await _pages(gateway, request, options)
        await run_closed_loop(gateway.address, request, num_connections=8, seconds=min(1.0, options.seconds / 10))
        paired = await _alternate(upstream.address, gateway.address, request, options.seconds * 0.4)
        busy = await _throughput(gateway, request, options.connections, options.seconds * 0.25)
        straight = await run_closed_loop(
            upstream.address, request, num_connections=options.connections, seconds=options.seconds * 0.1
        )
        rate = max(10.0, busy.loop.requests_per_s / 2)
        open_loop = await _offer(gateway.address, request, rate, options)
        return _card(options, paired, busy, straight, open_loop, rate)


async def _pages(gateway: Server, request: bytes, options: argparse.Namespace) -> Card:
    alone, watched = await measure_pages(
        gateway, request, num_pages=options.pages, num_connections=options.connections, seconds=options.seconds
    )
    return Card(
        bench="overhead",
        arrivals=f"closed loop, {options.connections} connections, without and with {options.pages} pages in turn",
        results={
            "pages_throughput_cost_ratio": 1.0 - watched.requests_per_s / alone.requests_per_s,
            "pages_cpu_cost_ratio": watched.cpu_us / alone.cpu_us - 1.0,
            "pages_added_p50_ms": watched.p50_ms - alone.p50_ms,
            "pages_added_p99_ms": watched.p99_ms - alone.p99_ms,
            "requests_per_s": alone.requests_per_s,
            "cpu_us_per_request": alone.cpu_us,
        },
        notes=("a page: one stream of server-sent events, of the four live topics in turn",),
    )


async def _tracing(upstream_url: str, options: argparse.Namespace, cores: set[int] | None) -> Card:
    request = request_bytes("POST", "/v1/chat/completions", chat_body("scripted", "x" * _PROMPT_CHARS))
    found = await measure_tracing(
        upstream_url, request, num_connections=options.connections, seconds=options.seconds, cores=cores
    )
    logged, everything = found["told"], found["all"]
    return Card(
        bench="overhead",
        arrivals=f"closed loop, {options.connections} connections, with and without lines and traces in turn",
        results={
            "tracing_throughput_cost_ratio": logged.throughput_cost_ratio,
            "tracing_cpu_cost_ratio": logged.cpu_cost_ratio,
            "all_traces_throughput_cost_ratio": everything.throughput_cost_ratio,
            "all_traces_cpu_cost_ratio": everything.cpu_cost_ratio,
            **{f"{name}_requests_per_s": one.requests_per_s for name, one in found.items()},
            **{f"{name}_cpu_us_per_request": one.cpu_us for name, one in found.items()},
        },
        notes=("told: every log line, a tenth of the traces, as by default; all: every trace",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paired:
    straight: Latencies
    through: Latencies
    num_failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Busy:
    loop: LoopResult
    cpu_us_per_request: float


async def _alternate(upstream: Address, gateway: Address, request: bytes, seconds: float) -> _Paired:
    """Blocks of sequential requests, one way and the other in turn."""
    connections = [await LoadConnection.open(address) for address in (upstream, gateway)]
    latencies: tuple[list[float], list[float]] = ([], [])
    num_failed = 0
    stop_at = clock() + seconds
    while clock() < stop_at:
        for connection, samples in zip(connections, latencies, strict=True):
            for _ in range(_BLOCK):
                exchange = await connection.exchange(request)
                if exchange.is_ok:
                    samples.append(exchange.ended_at - exchange.sent_at)
                else:
                    num_failed += 1
    for connection in connections:
        connection.close()
    return _Paired(straight=Latencies.of(latencies[0]), through=Latencies.of(latencies[1]), num_failed=num_failed)


async def _throughput(gateway: Server, request: bytes, num_connections: int, seconds: float) -> _Busy:
    cpu_before = gateway.process.cpu_s()
    loop = await run_closed_loop(gateway.address, request, num_connections=num_connections, seconds=seconds)
    cpu_s = gateway.process.cpu_s() - cpu_before
    return _Busy(loop=loop, cpu_us_per_request=cpu_s * 1e6 / max(1, len(loop.latencies_s)))


async def _offer(address: Address, request: bytes, rate: float, options: argparse.Namespace) -> OpenLoopResult:
    arrivals = list(poisson_arrivals(rate, options.seconds * 0.2, random.Random(options.seed)))
    return await run_open_loop(address, request, arrivals, warm=options.connections)


def _card(
    options: argparse.Namespace,
    paired: _Paired,
    busy: _Busy,
    straight: LoopResult,
    open_loop: OpenLoopResult,
    rate: float,
) -> Card:
    scheduled = Latencies.of(open_loop.latencies_s)
    num_failed = paired.num_failed + busy.loop.num_failed + straight.num_failed + open_loop.num_failed
    loop = Latencies.of(busy.loop.latencies_s)
    return Card(
        bench="overhead",
        arrivals=f"1 connection in sequence; closed loop, {options.connections} connections; Poisson, {rate:.0f} per s",
        results={
            "added_p50_ms": paired.through.p50_ms - paired.straight.p50_ms,
            "added_p99_ms": paired.through.p99_ms - paired.straight.p99_ms,
            "requests_per_s": busy.loop.requests_per_s,
            "cpu_us_per_request": busy.cpu_us_per_request,
            "closed_loop_p99_ms": loop.p99_ms,
            "upstream_requests_per_s": straight.requests_per_s,
            "open_loop_rate_per_s": rate,
            "open_loop_p50_ms": scheduled.p50_ms,
            "open_loop_p99_ms": scheduled.p99_ms,
            "failed_requests": num_failed,
        },
        notes=(
            f"straight to the upstream   {paired.straight}",
            f"through the gateway        {paired.through}",
            f"closed loop                {loop}",
            f"Poisson, from schedule     {scheduled}",
            f"client late by             {Latencies.of(open_loop.lateness_s)}",
        ),
        failed=f"{num_failed} requests failed ({busy.loop.first_failure})" if num_failed else None,
    )

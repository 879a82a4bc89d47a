"""Other gateways beside this one: the same upstream, client, loads and core, each gateway in turn.

Every gateway gets the same single core; the client and a scripted upstream that does no work share the others. Only
gateways that are installed run; the card names the others and where they come from. Latency is what a gateway adds to
the median of requests sent straight to the upstream in the same repeat.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from loadtests.clients.http_client import Address, LoadConnection
from loadtests.harness.card import Card, Value
from loadtests.harness.process_usage import tree_rss_bytes
from loadtests.harness.processes import Workbench, raise_fd_limit, split_cores
from loadtests.harness.stack import Script, Server, start_gateway, start_upstream
from loadtests.peers.gateway_loads import (
    Samples,
    Way,
    in_turn,
    time_cancels,
    time_closed_loop,
    time_single_requests,
    time_streams,
)
from loadtests.peers.gateway_programs import PROGRAMS, GatewayProgram, find_program, free_port
from loadtests.peers.html_page import write_bars

_OURS = "penstock"
_STRAIGHT = "straight"
_READY_TIMEOUT_S = 120.0
_REPEATS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--only", nargs="+", choices=sorted(PROGRAMS), help="of the others (default: all installed)")
    parser.add_argument("--programs", type=Path, nargs="+", default=[], metavar="DIR", help="look for them here first")
    parser.add_argument("--seconds", type=float, default=8.0, help="per gateway and repeat (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=_REPEATS, help="of all gateways (default %(default)s)")
    parser.add_argument("--connections", type=int, default=64, help="of the closed loop (default %(default)s)")
    parser.add_argument("--streams", type=int, default=200, help="at once (default %(default)s)")
    parser.add_argument("--cancels", type=int, default=50, help="answers left at once (default %(default)s)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots")
    parser.add_argument("--seed", type=int, default=1, help="of the starts of streams (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    gateway_cores, other_cores = split_cores()
    if other_cores is not None:
        os.sched_setaffinity(0, other_cores)  # whatever is started without cores of its own inherits it
    async with Workbench() as bench:
        upstream = await start_upstream(bench, Script(), other_cores)
        ours = await start_gateway(bench, upstream.admin.url, "scripted", cores=gateway_cores)
        started = await _start_others(bench, upstream.address, options, gateway_cores)
        ways = [
            Way(name=_STRAIGHT, address=upstream.address),
            Way(name=_OURS, address=ours.address, process=ours.process),
            *started.ways,
        ]
        samples = {way.name: Samples() for way in ways}
        rng = random.Random(options.seed)
        for number in range(options.repeats):
            for way in in_turn(ways, number):
                await _measure(way, upstream, options, rng, samples[way.name])
        memory = {way.name: tree_rss_bytes(way.process.pid) / 1e6 for way in ways if way.process is not None}
    return _card(options, samples, memory, started)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    """Gateways that run, and why others do not."""

    ways: list[Way]
    versions: Mapping[str, str]
    missing: Sequence[str]


async def _start_others(
    bench: Workbench, upstream: Address, options: argparse.Namespace, cores: set[int] | None
) -> _Started:
    """Start every installed gateway. Raises ProcessFailed for one that does not start."""
    ways: list[Way] = []
    versions: dict[str, str] = {}
    missing: list[str] = []
    for name in options.only or PROGRAMS:
        program = PROGRAMS[name]
        path = find_program(program.program, options.programs)
        if path is None:
            missing.append(f"{name} is not installed ({program.install})")
            continue
        ways.append(await _start(bench, program, path, upstream, cores))
        versions[name] = _version(program, path)
    return _Started(ways=ways, versions=versions, missing=missing)


async def _start(
    bench: Workbench, program: GatewayProgram, path: str, upstream: Address, cores: set[int] | None
) -> Way:
    port = free_port()
    launch = program.launch(path, upstream, port, bench.folder)
    process = await bench.start_program(program.name, launch.argv, cores, environment=launch.environment)
    way = Way(name=program.name, address=Address(port=port), headers=launch.headers, process=process)
    await process.wait_until(lambda: _serves(way), _READY_TIMEOUT_S)
    return way


async def _serves(way: Way) -> bool:
    """Return whether a chat request is answered; health endpoints differ, this does not."""
    connection = await LoadConnection.open(way.address)
    try:
        return (await asyncio.wait_for(connection.exchange(way.request()), 10.0)).is_ok
    except TimeoutError:
        return False
    finally:
        connection.close()


def _version(program: GatewayProgram, path: str) -> str:
    """Return its version: by its package in Node or Python, or as the program itself says."""
    if path.endswith(".js"):
        return str(json.loads((Path(path).parents[1] / "package.json").read_text())["version"])
    argv = [path, "-v"]
    if program.distribution:
        code = f"from importlib.metadata import version; print(version({program.distribution!r}))"
        argv = [str(Path(path).parent / "python"), "-c", code]
    found = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    lines = (found.stdout + found.stderr).strip().splitlines()
    return lines[-1] if lines else "unknown"


async def _measure(
    way: Way, upstream: Server, options: argparse.Namespace, rng: random.Random, samples: Samples
) -> None:
    """Measure one way once with every load."""
    await time_single_requests(way, max(20, int(25 * options.seconds)), samples)
    await time_closed_loop(way, options.connections, options.seconds * 0.3, samples)
    await time_streams(way, options.streams, options.seconds * 0.3, rng, samples)
    for stream in (True, False):
        await time_cancels(way, upstream.admin, options.cancels, samples, stream=stream)


def _card(
    options: argparse.Namespace, samples: Mapping[str, Samples], memory: Mapping[str, float], started: _Started
) -> Card:
    results: dict[str, Value] = {}
    straight = samples[_STRAIGHT]
    for name, one in samples.items():
        if name != _STRAIGHT:
            results |= {f"{name}_{key}": value for key, value in _figures(one, straight).items()}
            results[f"{name}_memory_mb"] = memory[name]
    ours = samples[_OURS]
    for name, one in samples.items():
        if name not in (_STRAIGHT, _OURS):
            results[f"cpu_of_{_OURS}_by_{name}"] = _ratio(ours.cpu_us_per_request, one.cpu_us_per_request)
            results[f"requests_of_{_OURS}_by_{name}"] = _ratio(ours.requests_per_s, one.requests_per_s)
    if options.html is not None:
        write_bars(options.html, "Gateways on one core", results, [name for name in samples if name != _STRAIGHT])
    failures = [f"{name}: {one.first_failure}" for name, one in samples.items() if one.first_failure]
    return Card(
        bench="peer_gateways",
        arrivals=(
            f"one core each, in turn: single requests, {options.connections} connections, "
            f"{options.streams} streams of 20 chunks per s, {options.cancels} answers left"
        ),
        results=results,
        notes=(
            *(f"{name} {version}" for name, version in started.versions.items()),
            *started.missing,
            *failures,
            f"straight: {straight.p50_ms} ms p50, {straight.requests_per_s} requests per s",
        ),
        failed=f"{_OURS}: {ours.first_failure}" if ours.first_failure else None,
    )


def _figures(one: Samples, straight: Samples) -> dict[str, Value]:
    """Return medians over the repeats; times are what the gateway adds in the same one."""
    return {
        "added_p50_ms": _added(one.p50_ms, straight.p50_ms),
        "added_p99_ms": _added(one.p99_ms, straight.p99_ms),
        "requests_per_s": median(one.requests_per_s),
        "cpu_us_per_request": median(one.cpu_us_per_request),
        "cpu_us_per_chunk": median(one.cpu_us_per_chunk),
        "added_first_token_p99_ms": _added(one.first_token_p99_ms, straight.first_token_p99_ms),
        "added_gap_p99_ms": _added(one.gap_p99_ms, straight.gap_p99_ms),
        "cancel_to_free_ms": median(one.cancel_to_free_ms),
        "plain_cancel_to_free_ms": median(one.plain_cancel_to_free_ms),
        "never_freed": one.num_never_freed,
        "streams_lost": one.num_lost,
        "failed": one.num_failed,
    }


def _added(through: Sequence[float], straight: Sequence[float]) -> float:
    return median(one - other for one, other in zip(through, straight, strict=True))


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return median(one / other if other else 0.0 for one, other in zip(ours, theirs, strict=True))

"""Answers given before: what an exact hit takes, what a miss costs, and that nobody gets another's answer.

Everything over HTTP, against a scripted upstream that does no work. What a miss costs is the time to the first byte of
streams that were never asked before, on a route with the cache and on one without it, in blocks by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
from hashlib import sha256
from random import Random

from loadtests.cache_scopes import ScopeResult, run_scopes
from loadtests.card import Card
from loadtests.client import Address, LoadConnection, clock
from loadtests.closed_loop import LoopResult, run_closed_loop
from loadtests.measures import Latencies
from loadtests.processes import Workbench, raise_fd_limit, split_cores
from loadtests.stack import Script, chat_body, start_gateway_with, start_upstream
from loadtests.wire import request_bytes

_BLOCK = 50
_PROMPT_CHARS = 320
_TENANTS = tuple(f"tenant{number}" for number in range(8))
_HIT = b"\r\nx-penstock-cache: hit-exact"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--seconds", type=float, default=20.0, help="of the timed parts (default %(default)s)")
    parser.add_argument("--lookups", type=int, default=100_000, help="across scopes (default %(default)s)")
    parser.add_argument("--connections", type=int, default=64, help="of the closed loop (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of what is asked (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    gateway_cores, other_cores = split_cores()
    async with Workbench() as bench:
        upstream = await start_upstream(bench, Script(), other_cores)
        gateway = await start_gateway_with(bench, _policy(upstream.admin.url), cores=gateway_cores)
        if other_cores is not None:
            os.sched_setaffinity(0, other_cores)
        key = (("authorization", f"Bearer {secret_of(_TENANTS[0])}"),)
        again = request_bytes("POST", "/v1/chat/completions", chat_body("one", "x" * _PROMPT_CHARS), key)
        await run_closed_loop(gateway.address, again, num_connections=1, num_requests=20)
        one_by_one = await run_closed_loop(gateway.address, again, num_connections=1, seconds=options.seconds * 0.2)
        cpu_before = gateway.process.cpu_s()
        busy = await run_closed_loop(
            gateway.address, again, num_connections=options.connections, seconds=options.seconds * 0.3
        )
        cpu_s = gateway.process.cpu_s() - cpu_before
        off, on = await _misses(gateway.address, key, options.seconds * 0.5)
        secrets = {tenant: secret_of(tenant) for tenant in _TENANTS}
        scopes = await run_scopes(gateway.address, secrets, options.lookups, Random(options.seed))
        return _card(options, one_by_one, busy, cpu_s, off, on, scopes)


def secret_of(tenant: str) -> str:
    """The key of one of the bench's tenants."""
    return f"sk-penstock-bench-{tenant}"


def _policy(url: str) -> dict[str, object]:
    """Two routes with the cache and one without, for several tenants."""
    ids = ("first", "second", "third")
    limits = {"max_in_flight": 100_000}
    cache = {"mode": "exact", "scope": "tenant", "ttl_s": 3600}
    routes: list[dict[str, object]] = [
        {"id": name, "match": {"models": [name]}, "select": {"policy": "first_available", "candidates": [deployment]}}
        for name, deployment in zip(("one", "two", "off"), ids, strict=True)
    ]
    for route in routes[:2]:
        route["cache"] = cache
    return {
        "schema_version": 1,
        "deployments": [{"id": name, "url": url, "model": f"scripted-{name}", "limits": limits} for name in ids],
        "routes": routes,
        "tenants": [
            {"id": tenant, "keys": [{"id": "k", "sha256": sha256(secret_of(tenant).encode()).hexdigest()}]}
            for tenant in _TENANTS
        ],
    }


async def _misses(
    address: Address, headers: tuple[tuple[str, str], ...], seconds: float
) -> tuple[list[float], list[float]]:
    """Seconds to the first byte of new streams: without the cache, and with it. Raises OSError when one fails."""
    connections = [await LoadConnection.open(address) for _ in range(2)]
    samples: tuple[list[float], list[float]] = ([], [])
    numbers = itertools.count()
    stop_at = clock() + seconds
    while clock() < stop_at:
        for model, connection, times in zip(("off", "one"), connections, samples, strict=True):
            for _ in range(_BLOCK):
                text = f"{next(numbers):012d}" + "x" * _PROMPT_CHARS
                body = chat_body(model, text, stream=True)
                exchange = await connection.exchange(request_bytes("POST", "/v1/chat/completions", body, headers))
                if not exchange.is_ok or _HIT in connection.scanner.head:
                    raise OSError(f"a new question: {exchange.error or exchange.status}")
                times.append(exchange.first_byte_at - exchange.sent_at)
        await asyncio.sleep(0)
    for connection in connections:
        connection.close()
    return samples


def _card(
    options: argparse.Namespace,
    one_by_one: LoopResult,
    busy: LoopResult,
    cpu_s: float,
    off: list[float],
    on: list[float],
    scopes: ScopeResult,
) -> Card:
    hits, without, with_cache = Latencies.of(one_by_one.latencies_s), Latencies.of(off), Latencies.of(on)
    num_failed = one_by_one.num_failed + busy.num_failed + scopes.num_failed
    problems = [f"{num_failed} requests failed"] if num_failed else []
    if scopes.num_wrong:
        problems.append(f"{scopes.num_wrong} answers belonged to another scope, such as {scopes.first_wrong}")
    if not scopes.num_hits:
        problems.append("nothing was hit across scopes, so nothing was tried")
    return Card(
        bench="cache",
        arrivals=f"1 connection in sequence; closed loop, {options.connections} connections; 16 across scopes",
        results={
            "exact_p50_ms": hits.p50_ms,
            "exact_p99_ms": hits.p99_ms,
            "exact_hits_per_s": busy.requests_per_s,
            "exact_cpu_us_per_hit": cpu_s * 1e6 / max(1, len(busy.latencies_s)),
            "miss_added_p50_ms": with_cache.p50_ms - without.p50_ms,
            "cross_scope_wrong": scopes.num_wrong,
            "cross_scope_lookups": scopes.num_lookups,
            "cross_scope_hits": scopes.num_hits,
        },
        notes=(
            f"exact hits                 {hits}",
            f"first byte, cache off      {without}",
            f"first byte, cache on, miss {with_cache}",
        ),
        failed="; ".join(problems) or None,
    )

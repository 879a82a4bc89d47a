"""Response cache: the time of hits, the cost of a miss, and no answer to another caller's request.

Everything over HTTP, against a scripted upstream that does no work. What a miss costs is the time to the first byte of
streams that were never sent before, on a route without the cache, on one with exact answers and on one with similar
ones too, by turns and at a steady rate: of an upstream that answers at once, and of one that answers amid encoding.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from random import Random

from loadtests.cache.cache_quality import add_quality_arguments
from loadtests.cache.cache_quality import run as run_quality
from loadtests.cache.cache_scopes import ScopeResult, run_scopes
from loadtests.cache.similar import RATE_PER_S, SimilarResult, run_similar, until_encoding
from loadtests.clients.closed_loop import LoopResult, run_closed_loop
from loadtests.clients.http_client import Address, LoadConnection, clock, request_bytes
from loadtests.harness.card import Card
from loadtests.harness.measures import Latencies
from loadtests.harness.processes import Workbench, raise_fd_limit, split_cores
from loadtests.harness.stack import Script, chat_body, start_gateway_with, start_upstream

MISSED = ("off", "one", "similar-one")
"""Routes that get new questions, by turns."""
_MISS_PAUSE_S = 0.02
_PROMPT_CHARS = 320
_FILLER = "filler"
"""Whose cache the timed parts fill."""
_ENOUGH_LOOKUPS = 10_000
_TENANTS = tuple(f"tenant{number}" for number in range(8))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--seconds", type=float, default=20.0, help="of the timed parts (default %(default)s)")
    parser.add_argument("--lookups", type=int, default=100_000, help="across scopes (default %(default)s)")
    parser.add_argument("--connections", type=int, default=64, help="of the closed loop (default %(default)s)")
    parser.add_argument(
        "--first-byte-ms",
        type=float,
        default=3.0,
        help="of an upstream whose answer comes amid encoding (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the requests (default %(default)s)")
    add_quality_arguments(parser)


async def run(options: argparse.Namespace) -> Card:
    """Measure: times over HTTP, then what the decision is worth."""
    card, quality = await _over_http(options), await run_quality(options)
    return replace(card, results={**card.results, **quality.results}, notes=(*card.notes, *quality.notes))


async def _over_http(options: argparse.Namespace) -> Card:
    raise_fd_limit()
    gateway_cores, other_cores = split_cores()
    async with Workbench() as bench:
        upstream = await start_upstream(bench, Script(), other_cores)
        gateway = await start_gateway_with(bench, _policy(upstream.admin.url), cores=gateway_cores)
        if other_cores is not None:
            os.sched_setaffinity(0, other_cores)
        await until_encoding(gateway.address, gateway.admin, "similar-one", _key_of(_FILLER))
        key = _key_of(_FILLER)
        again = request_bytes("POST", "/v1/chat/completions", chat_body("one", "x" * _PROMPT_CHARS), key)
        await run_closed_loop(gateway.address, again, num_connections=1, num_requests=20)
        one_by_one = await run_closed_loop(gateway.address, again, num_connections=1, seconds=options.seconds * 0.2)
        cpu_before = gateway.process.cpu_s()
        busy = await run_closed_loop(
            gateway.address, again, num_connections=options.connections, seconds=options.seconds * 0.3
        )
        cpu_s = gateway.process.cpu_s() - cpu_before
        similar = await run_similar(gateway.address, gateway.admin, "similar-one", key, options.seconds, options.seed)
        misses = await _misses(gateway.address, key, options.seconds, (0.0, options.first_byte_ms))
        secrets = {tenant: secret_of(tenant) for tenant in _TENANTS}
        rng, half = Random(options.seed), options.lookups // 2
        scopes = [
            await run_scopes(gateway.address, secrets, options.lookups - half, rng),
            await run_scopes(gateway.address, secrets, half, rng, is_similar=True),
        ]
        return _card(options, one_by_one, busy, cpu_s, similar, misses, scopes)


def secret_of(tenant: str) -> str:
    """The key of one of the bench's tenants."""
    return f"sk-penstock-bench-{tenant}"


def _policy(url: str) -> dict[str, object]:
    """Two routes with the cache and one without, for several tenants."""
    ids = ("first", "second", "third")
    limits = {"max_in_flight": 100_000}
    exact = {"mode": "exact", "scope": "tenant", "ttl_s": 3600}
    similar = {**exact, "mode": "exact_then_semantic", "max_error_ratio": 0.05, "audit_ratio": 0.0}
    served = zip(
        ("one", "two", "similar-one", "similar-two", "off"),
        ("first", "second", "first", "second", "third"),
        (exact, exact, similar, similar, {"mode": "off"}),
        strict=True,
    )
    routes = [
        {
            "id": name,
            "match": {"models": [name]},
            "select": {"policy": "first_available", "candidates": [deployment]},
            "cache": cache,
        }
        for name, deployment, cache in served
    ]
    return {
        "schema_version": 1,
        "deployments": [{"id": name, "url": url, "model": f"scripted-{name}", "limits": limits} for name in ids],
        "routes": routes,
        "tenants": [
            {"id": tenant, "keys": [{"id": "k", "sha256": sha256(secret_of(tenant).encode()).hexdigest()}]}
            for tenant in (*_TENANTS, _FILLER)
        ],
    }


async def _misses(
    address: Address, headers: tuple[tuple[str, str], ...], seconds: float, first_byte_ms: Sequence[float]
) -> list[list[float]]:
    """Seconds to the first byte of new streams: of each of MISSED, for each upstream. Raises OSError when one fails."""
    upstream_cases = [(model, wait_ms) for wait_ms in first_byte_ms for model in MISSED]
    connections = [await LoadConnection.open(address) for _ in upstream_cases]
    samples: list[list[float]] = [[] for _ in upstream_cases]
    numbers = itertools.count()
    stop_at = clock() + seconds
    while clock() < stop_at:
        for (model, wait_ms), connection, times in zip(upstream_cases, connections, samples, strict=True):
            text = f"Where does one find the door number {next(numbers)} of that building?"
            body = chat_body(model, text, stream=True, user=f"script:first_byte_ms={wait_ms:g}")
            exchange = await connection.exchange(request_bytes("POST", "/v1/chat/completions", body, headers))
            if not exchange.is_ok or b"\r\nx-penstock-cache: hit" in connection.scanner.head:
                raise OSError(f"a new question: {exchange.error or exchange.status}")
            times.append(exchange.first_byte_at - exchange.sent_at)
            await asyncio.sleep(_MISS_PAUSE_S)
    for connection in connections:
        connection.close()
    return samples


def _key_of(tenant: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {secret_of(tenant)}"),)


def _card(
    options: argparse.Namespace,
    one_by_one: LoopResult,
    busy: LoopResult,
    cpu_s: float,
    similar: SimilarResult,
    misses: list[list[float]],
    scopes: list[ScopeResult],
) -> Card:
    hits = Latencies.of(one_by_one.latencies_s)
    off, exact, semantic, late_off, late_exact, late_semantic = (Latencies.of(times) for times in misses)
    found, steady = Latencies.of(similar.one_by_one_s), Latencies.of(similar.steady_s)
    return Card(
        bench="cache",
        arrivals=(
            f"exact hits: 1 connection in sequence, then closed loop of {options.connections}; semantic hits: 1 in "
            f"sequence, then Poisson {RATE_PER_S:g}/s; misses: one every {_MISS_PAUSE_S * 1000:g} ms; 16 across scopes"
        ),
        results={
            "exact_p50_ms": hits.p50_ms,
            "exact_p99_ms": hits.p99_ms,
            "exact_hits_per_s": busy.requests_per_s,
            "exact_cpu_us_per_hit": cpu_s * 1e6 / max(1, len(busy.latencies_s)),
            "semantic_p50_ms": found.p50_ms,
            "semantic_p99_ms": steady.p99_ms,
            "exact_miss_added_p50_ms": exact.p50_ms - off.p50_ms,
            "miss_added_p50_ms": semantic.p50_ms - off.p50_ms,
            "late_exact_miss_added_p50_ms": late_exact.p50_ms - late_off.p50_ms,
            "late_miss_added_p50_ms": late_semantic.p50_ms - late_off.p50_ms,
            "cross_scope_wrong": sum(scope.num_wrong for scope in scopes),
            "cross_scope_lookups": sum(scope.num_lookups for scope in scopes),
            "cross_scope_hits": sum(scope.num_hits for scope in scopes),
            "cross_scope_semantic_hits": sum(scope.num_similar for scope in scopes),
        },
        notes=(
            f"exact hits                    {hits}",
            f"semantic hits one by one      {found}",
            f"semantic hits at {RATE_PER_S:g}/s         {steady}",
            f"other wordings served         {similar.num_served} of {similar.num_sent}",
            f"first byte, cache off         {off}",
            f"first byte, exact, miss       {exact}",
            f"first byte, semantic, miss    {semantic}",
            f"the same, upstream after {options.first_byte_ms:g} ms: {late_off}; {late_exact}; {late_semantic}",
        ),
        failed="; ".join(_problems(one_by_one, busy, similar, scopes)) or None,
    )


def _problems(one_by_one: LoopResult, busy: LoopResult, similar: SimilarResult, scopes: list[ScopeResult]) -> list[str]:
    num_failed = one_by_one.num_failed + busy.num_failed + similar.num_failed + sum(one.num_failed for one in scopes)
    problems = [f"{num_failed} requests failed"] if num_failed else []
    problems += [
        f"{scope.num_wrong} answers belonged to another scope, such as {scope.first_wrong}"
        for scope in scopes
        if scope.num_wrong
    ]
    exact, semantic = scopes
    has_to_hit = semantic.num_lookups >= _ENOUGH_LOOKUPS
    if not exact.num_hits or (has_to_hit and not semantic.num_similar):
        problems.append("nothing was hit across scopes, so nothing was tried")
    return problems

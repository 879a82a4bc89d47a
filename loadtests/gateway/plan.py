"""A plan beside what then happens: recorded requests through another policy, and the same requests again under it.

The gateway records (features only) while one policy is in force. The other has a route by a condition, another bound of
quality for the rest, and keeps answers where the first stored none. It is planned, applied, and the same requests are
sent once more in the same order. Prompts are held-out ones of the bundled models' tasks, some sent much more often than
others; who answers does no work, for only routes and hits are evaluated."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from loadtests.clients.gateway_admin import GatewayAdmin
from loadtests.clients.http_client import LoadConnection, clock, request_bytes
from loadtests.harness.bundled_prompts import bundled_prompts
from loadtests.harness.card import Card, Value
from loadtests.harness.processes import Workbench
from loadtests.harness.stack import Script, Server, start_gateway_with, start_upstream

_SAMPLES: Final = 2000
_SKEW: Final = 0.6
"""Of Zipf's law: the prompt of rank r is sent so much as 1 / r ** this."""
_SETTLE_S: Final = 2.0
"""Recorded requests are on disk within a second."""
_HEADERS: Final = ("route", "deployment", "cache")
MAX_S: Final = 60.0
MAX_POINTS: Final = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--requests", type=int, default=100_000, help="to record and replay (default %(default)s)")
    parser.add_argument("--connections", type=int, default=16, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the traffic (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    async with Workbench() as bench:
        upstream = await start_upstream(bench, Script(num_chunks=1))
        traffic = await _traffic(bench, options.seed, options.requests)
        store = f"embedded:{bench.folder / 'store.sqlite3'}"
        settings = {"policy.source": "store", "store.address": store, "telemetry.recorder.mode": "features"}
        gateway = await start_gateway_with(bench, _policy(upstream, is_new=False), settings=settings)
        admin, document = GatewayAdmin(gateway, bench.folder), json.dumps(_policy(upstream, is_new=True))
        recorded = await _serve(gateway, traffic, options.connections)
        await asyncio.sleep(_SETTLE_S)
        began_at = clock()
        plan = (await admin.plan(document))["replay"]
        plan_s = clock() - began_at
        await admin.until(await admin.apply(document))
        happened = await _serve(gateway, traffic, options.connections)
    planned = _of_plan(plan["new"])
    points = {name: 100 * abs(planned[name] - happened[name]) for name in {*planned, *happened}}
    results: dict[str, Value] = {
        "num_requests": plan["num_requests"],
        "plan_s": plan_s,
        "worst_points": max(points.values()),
        "worst_of": max(points, key=points.__getitem__),
        "hit_ratio_planned": planned["hits"],
        "hit_ratio_planned_error": plan["new"]["hit_ratio_error"],
        "hit_ratio_happened": happened["hits"],
    }
    return Card(
        bench="plan",
        arrivals=f"closed loop, {options.connections} connections, the same {len(traffic)} requests twice",
        results=results,
        notes=(
            "shares of all requests: recorded, planned, and what then happened",
            *(
                f"{name:<18} {recorded[name]:.4f}  {planned[name]:.4f}  {happened[name]:.4f}"
                for name in sorted({*planned, *happened})
            ),
        ),
        failed=_failure(results, options.requests),
    )


def _failure(results: Mapping[str, Value], num_requests: int) -> str | None:
    if results["num_requests"] != num_requests:
        return f"{results['num_requests']} of {num_requests} requests were recorded"
    worst, took = results["worst_points"], results["plan_s"]
    assert isinstance(worst, float)
    assert isinstance(took, float)
    if worst > MAX_POINTS:
        return f"the plan of {results['worst_of']} is {worst:.1f} points beside what happened"
    return f"the plan took {took:.0f} s" if took > MAX_S else None


async def _traffic(bench: Workbench, seed: int, num_requests: int) -> list[bytes]:
    """Requests in their order, a few prompts much more often than most."""
    prompts = await bundled_prompts(bench, seed=seed, samples=_SAMPLES)
    rng = Random(seed)
    rng.shuffle(prompts)
    sent = [
        request_bytes(
            "POST",
            "/v1/chat/completions",
            json.dumps({"model": "auto", "temperature": 0, "messages": prompt["messages"]}).encode(),
        )
        for prompt in prompts
    ]
    weights = itertools.accumulate((rank + 1) ** -_SKEW for rank in range(len(sent)))
    return rng.choices(sent, cum_weights=list(weights), k=num_requests)


def _policy(upstream: Server, *, is_new: bool) -> dict[str, Any]:
    deployments = [
        {
            "id": size,
            "url": upstream.address.url,
            "model": f"penstock-{size}",
            "quality": quality,
            "cost_per_mtok": {"prompt": price, "completion": price},
            "limits": {"max_in_flight": 1000},
        }
        for size, quality, price in (("small", 0.8, 1), ("large", 1.0, 9))
    ]
    select = {
        "policy": "quality_then_latency",
        "min_quality": 0.8 if is_new else 0.93,
        "candidates": ["small", "large"],
    }
    main: dict[str, Any] = {"id": "main", "match": {"models": ["auto"]}, "select": select}
    if not is_new:
        return {"schema_version": 1, "deployments": deployments, "routes": [main]}
    cache = {"mode": "exact", "ttl_s": 3600}
    long = {
        "id": "long",
        "match": {"models": ["auto"], "when": "request.turns > 1"},
        "select": {"candidates": ["large"]},
        "cache": cache,
    }
    return {"schema_version": 1, "deployments": deployments, "routes": [long, {**main, "cache": cache}]}


async def _serve(gateway: Server, traffic: Sequence[bytes], num_connections: int) -> Counter[str]:
    """Shares of routes, of deployments and of hits. Raises SystemExit when a request fails."""
    counts: Counter[str] = Counter()
    queue = iter(traffic)

    async def drive() -> None:
        connection = await LoadConnection.open(gateway.address)
        for request in queue:
            exchange = await connection.exchange(request)
            if not exchange.is_ok:
                raise SystemExit(f"a request failed: {exchange.error or exchange.status}")
            counts.update(_decisions_of(connection.scanner.head))
            if not connection.is_open:
                connection = await LoadConnection.open(gateway.address)
        connection.close()

    await asyncio.gather(*(drive() for _ in range(num_connections)))
    return Counter({name: count / len(traffic) for name, count in counts.items()})


def _decisions_of(head: bytes) -> list[str]:
    """What the headers state of one answer."""
    found = {}
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b": ")
        found[name.lower().decode("latin-1")] = value.decode("latin-1")
    route, deployment, cache = (found.get(f"x-penstock-{name}", "") for name in _HEADERS)
    if cache.startswith("hit"):
        return [f"route {route}", "hits"]
    return [f"route {route}", f"by {deployment}"]


def _of_plan(side: Mapping[str, Any]) -> Counter[str]:
    """The same of a side of a plan, where nothing is refused."""
    shares = {f"route {name}": share for name, share in side["routes"].items()}
    shares |= {f"by {name}": share for name, share in side["deployments"].items() if name != "cache"}
    return Counter({**shares, "hits": side["hit_ratio"]})

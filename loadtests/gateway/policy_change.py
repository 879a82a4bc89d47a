"""How soon a policy change is in force everywhere, with requests under way at every replica.

Three gateways share a store, each a process of its own. Revisions are applied at one after the other in turn; from the
moment an apply has been answered all three are requested their policy until the last one has it. Meanwhile clients send
requests without a pause to all of them; none may fail.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from loadtests.clients.gateway_admin import GatewayAdmin
from loadtests.clients.http_client import LoadConnection, clock, request_bytes
from loadtests.harness.card import Card, Value
from loadtests.harness.processes import Workbench
from loadtests.harness.stack import Script, Server, chat_body, start_gateway_with, start_upstream

NUM_REPLICAS: Final = 3
_LIMIT_MS: Final = 1000.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--changes", type=int, default=40, help="revisions to apply (default %(default)s)")
    parser.add_argument("--clients", type=int, default=2, help="connections to each replica (default %(default)s)")
    parser.add_argument("--store", help="of all replicas, such as redis://127.0.0.1:6379/0 (default: one SQLite file)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    async with Workbench() as bench:
        upstream = await start_upstream(bench, Script())
        store = options.store or f"embedded:{bench.folder / 'shared.sqlite3'}"
        settings = {"policy.source": "store", "store.address": store}
        policy = _policy(upstream, 0)
        replicas = [
            await start_gateway_with(bench, policy, settings=settings, name=f"replica{number}")
            for number in range(NUM_REPLICAS)
        ]
        admins = [GatewayAdmin(replica, bench.folder / f"replica{number}") for number, replica in enumerate(replicas)]
        is_over, statuses = asyncio.Event(), list[int]()
        clients = [
            asyncio.create_task(_send_on(replica, is_over, statuses))
            for replica in replicas
            for _ in range(options.clients)
        ]
        applied_ms, everywhere_ms = [], []
        for number in range(1, options.changes + 1):
            took = await _change(admins, number % NUM_REPLICAS, json.dumps(_policy(upstream, number)))
            applied_ms.append(1000 * took[0])
            everywhere_ms.append(1000 * took[1])
        is_over.set()
        await asyncio.gather(*clients)
    failed = sum(status != 200 for status in statuses)
    results: dict[str, Value] = {
        "num_changes": options.changes,
        "apply_ms_p50": median(applied_ms),
        "everywhere_ms_p50": median(everywhere_ms),
        "everywhere_ms_max": max(everywhere_ms),
        "num_requests": len(statuses),
        "num_failed": failed,
    }
    return Card(
        bench="policy_change",
        arrivals=f"closed loop, {options.clients} connections to each of {NUM_REPLICAS} replicas",
        results=results,
        notes=("everywhere: from the answer to an apply until the last replica shows the revision",),
        failed=_failure(results),
    )


def _failure(results: dict[str, Value]) -> str | None:
    slowest = results["everywhere_ms_max"]
    assert isinstance(slowest, float)
    if results["num_failed"]:
        return f"{results['num_failed']} requests failed"
    return f"a change took {slowest:.0f} ms to reach all" if slowest > _LIMIT_MS else None


def _policy(upstream: Server, number: int) -> dict[str, Any]:
    deployment = {"id": "bench", "url": upstream.address.url, "model": "scripted"}
    route = {
        "id": "main",
        "match": {"models": ["auto"]},
        "select": {"candidates": ["bench"]},
        "timeouts": {"total_ms": 60_000 + number},
    }
    return {"schema_version": 1, "deployments": [deployment], "routes": [route]}


async def _change(admins: Sequence[GatewayAdmin], at: int, document: str) -> tuple[float, float]:
    """Seconds until the apply was answered, and from there until everybody has it."""
    began_at = clock()
    revision = await admins[at].apply(document)
    answered_at = clock()
    await asyncio.gather(*(admin.until(revision) for admin in admins))
    return answered_at - began_at, clock() - answered_at


async def _send_on(replica: Server, is_over: asyncio.Event, statuses: list[int]) -> None:
    """Requests without a pause, each waiting for the one before it."""
    connection = await LoadConnection.open(replica.address)
    request = request_bytes("POST", "/v1/chat/completions", chat_body("auto", "hello"))
    while not is_over.is_set():
        exchange = await connection.exchange(request)
        statuses.append(exchange.status if exchange.error is None else 0)
        if not connection.is_open:
            connection = await LoadConnection.open(replica.address)
    connection.close()

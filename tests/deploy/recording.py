"""`python -m tests.deploy.recording`: record what the scaler reads, from a gateway under load.

A scripted engine takes a second for each answer and the gateway has four permits for it. One minute is idle, then
fourteen clients send requests for three minutes without a pause, then four are idle. Another engine has no requests.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from loadtests.clients.closed_loop import run_closed_loop
from loadtests.clients.http_client import fetch, request_bytes
from loadtests.harness.processes import Workbench
from loadtests.harness.stack import Script, Server, start_gateway_with, start_upstream

FILE: Final = Path(__file__).parent / "recorded" / "queue_wait.json"
INTERVAL_S: Final = 15
NAMES: Final = (
    "penstock_concurrency_limit",
    "penstock_deployment_ready",
    "penstock_in_flight",
    "penstock_queue_wait_seconds_bucket",
)
_IDLE_S, _BUSY_S, _REST_S, _CLIENTS = 60, 180, 240, 14


def policy(url: str) -> dict[str, object]:
    """Return a policy with the names of the Kubernetes base: an engine with four permits, and an idle one."""
    cost = {"prompt": 1, "completion": 2}
    small, large = (
        {"id": f"{name}-0", "url": url, "model": "scripted", "cost_per_mtok": cost, "limits": {"max_in_flight": 4}}
        for name in ("small", "large")
    )
    routes = [
        {"id": name, "match": {"models": [name]}, "select": {"candidates": [f"{name}-0"]}}
        for name in ("small", "large")
    ]
    return {"schema_version": 1, "deployments": [small, large], "routes": routes}


async def scraped(gateway: Server) -> dict[str, float]:
    """Return the value of every series that the scaler reads."""
    _, text = await fetch(gateway.admin, "/metrics")
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {named(sample.name, sample.labels): sample.value for sample in samples if sample.name in NAMES}


def named(name: str, labels: Mapping[str, str]) -> str:
    """Return a series as Prometheus writes it."""
    pairs = (f"{label}={json.dumps(value)}" for label, value in sorted(labels.items()))
    return f"{name}{{{','.join(pairs)}}}"


async def record() -> list[dict[str, float]]:
    """Return one scrape for each interval."""
    body = json.dumps({"model": "small", "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]})
    request = request_bytes("POST", "/v1/chat/completions", body.encode())
    async with Workbench() as bench:
        upstream = await start_upstream(bench, Script(first_byte_ms=1000.0))
        gateway = await start_gateway_with(bench, policy(upstream.address.url))
        scrapes: list[dict[str, float]] = []
        started_at = time.monotonic()

        async def scrape_for(seconds: float) -> None:
            for _ in range(int(seconds / INTERVAL_S)):
                scrapes.append(await scraped(gateway))
                await asyncio.sleep(max(0.0, started_at + len(scrapes) * INTERVAL_S - time.monotonic()))

        await scrape_for(_IDLE_S)
        load = asyncio.create_task(run_closed_loop(gateway.address, request, num_connections=_CLIENTS, seconds=_BUSY_S))
        await scrape_for(_BUSY_S)
        result = await load
        assert not result.num_failed, result.first_failure
        await scrape_for(_REST_S)
    return scrapes


def main() -> None:
    """Write the recording."""
    scrapes = asyncio.run(record())
    names = sorted({name for scrape in scrapes for name in scrape})
    series = {name: [scrape.get(name) for scrape in scrapes] for name in names}
    lines = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(values)}" for name, values in series.items())
    FILE.write_text(f"{{\n  {lines}\n}}\n")


if __name__ == "__main__":
    main()

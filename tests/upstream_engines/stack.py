"""An engine of others, and a gateway in front of it under the policy that ships for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import yaml

from loadtests.harness.processes import Process, Workbench
from loadtests.harness.stack import start_gateway_with
from loadtests.peers.gateway_programs import free_port
from tests.upstream_engines.checks import Gateway
from tests.upstream_engines.engines import MODEL, ROOT, UpstreamEngine

_START_TIMEOUT_S: Final = 900.0


@asynccontextmanager
async def behind_gateway(engine: UpstreamEngine, model: Path, *, num_engines: int = 1) -> AsyncIterator[Gateway]:
    """Start both; with one engine, both deployments of the policy are that one under two addresses."""
    ports = [free_port() for _ in range(num_engines)]
    async with Workbench() as bench:
        running = [await _start(bench, engine, model, port) for port in ports]
        policy = _policy(engine, ports)
        server = await start_gateway_with(bench, policy)
        token = (bench.folder / "admin.token").read_text().strip()

        async def kill() -> None:
            for process in running:
                await process.kill()

        async def restart() -> None:
            running[:] = [await _start(bench, engine, model, port) for port in ports]

        async with (
            httpx.AsyncClient(base_url=server.address.url, timeout=300.0) as client,
            httpx.AsyncClient(base_url=server.admin.url, headers={"authorization": f"Bearer {token}"}) as admin,
        ):
            yield Gateway(client=client, admin=admin, restart=restart, kill=kill)


def _policy(engine: UpstreamEngine, ports: Sequence[int]) -> dict[str, object]:
    """Return the shipped policy with the addresses and the model of this run."""
    path = ROOT / "routing_policies" / "presets" / f"{engine.policy}.yaml"
    text = path.read_text().replace("http://127.0.0.1:8000", f"http://127.0.0.1:{ports[0]}")
    text = text.replace("http://127.0.0.1:8001", f"http://localhost:{ports[-1]}").replace("assistant", MODEL)
    document: dict[str, object] = yaml.safe_load(text)
    return document


async def _start(bench: Workbench, engine: UpstreamEngine, model: Path, port: int) -> Process:
    command = engine.command(engine.python, model, port)
    process = await bench.start_program(f"{engine.name}-{port}", command, environment=engine.environment)

    async def lists_models() -> bool:
        async with httpx.AsyncClient() as client:
            try:
                answer = await client.get(f"http://127.0.0.1:{port}/v1/models", timeout=5.0)
            except httpx.TransportError:
                return False
            return answer.status_code == 200

    await process.wait_until(lists_models, _START_TIMEOUT_S)
    return process

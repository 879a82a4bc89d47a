"""What benches put together: a scripted upstream or an engine, and a gateway in front of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from loadtests.clients.http_client import Address, fetch
from loadtests.engines.engine_server import shape_arguments
from loadtests.engines.modelled_engine import EngineShape
from loadtests.harness.processes import Process, Workbench

_READY_TIMEOUT_S = 30.0
_ENGINE_READY_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server and where it listens."""

    process: Process
    address: Address
    admin: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How the scripted upstream answers when the request itself is silent."""

    first_byte_ms: float = 0.0
    num_chunks: int = 8
    chunks_per_s: float = 0.0
    """0: all at once."""
    chunk_chars: int = 8


async def start_upstream(
    bench: Workbench, script: Script, cores: set[int] | None = None, name: str = "upstream"
) -> Server:
    """The scripted upstream, on a Unix socket (for the gateway) and a TCP port (for the client)."""
    path = str(bench.folder / f"{name}.sock")
    arguments = ["--listen", path]
    for name in ("first_byte_ms", "num_chunks", "chunks_per_s", "chunk_chars"):
        arguments += [f"--{name.replace('_', '-')}", str(getattr(script, name))]
    return await _started(bench, name, "loadtests.engines.scripted_upstream", arguments, path, cores)


async def _started(
    bench: Workbench, name: str, module: str, arguments: Sequence[str], path: str, cores: set[int] | None
) -> Server:
    """A scripted server that announces its TCP port on stdout and listens on the Unix socket `path` besides."""
    process = await bench.start(name, module, arguments, cores)
    unix = Address(path=path)

    async def is_announced() -> bool:
        return bool(process.json_lines())

    await process.wait_until(is_announced, _READY_TIMEOUT_S)
    await process.wait_until(lambda: _is_ready(unix, "/readyz"), _READY_TIMEOUT_S)
    port = process.json_lines()[0]["port"]
    assert isinstance(port, int)
    return Server(process=process, address=Address(port=port), admin=unix)


async def start_model_engines(
    bench: Workbench, shape: EngineShape, count: int = 1, *, is_silent: bool = False, cores: set[int] | None = None
) -> list[Server]:
    """Servers with the timing of the modelled engine, each on a Unix socket and a TCP port."""
    servers = []
    for number in range(count):
        path = str(bench.folder / f"engine{number}.sock")
        arguments = ["--listen", path, *shape_arguments(shape), *(["--silent"] if is_silent else [])]
        servers.append(
            await _started(bench, f"engine{number}", "loadtests.engines.engine_server", arguments, path, cores)
        )
    return servers


async def start_gateway(
    bench: Workbench,
    upstream_url: str,
    model: str,
    *,
    max_in_flight: int = 100_000,
    cores: set[int] | None = None,
) -> Server:
    """A gateway whose only deployment is the given upstream; without keys, caches or trimming."""
    deployment = {"id": "bench", "url": upstream_url, "model": model, "limits": {"max_in_flight": max_in_flight}}
    return await start_gateway_with(bench, {"schema_version": 1, "deployments": [deployment]}, cores=cores)


async def start_gateway_with(
    bench: Workbench,
    policy: Mapping[str, object],
    *,
    settings: Mapping[str, object] = MappingProxyType({}),
    cores: set[int] | None = None,
    name: str = "",
    module: str = "gateway",
) -> Server:
    """A gateway under the given policy document; `settings` are further keys of its penstock.toml by path, `name` is
    for one of several, which has a folder of its own; `module` is what takes the command line."""
    folder = bench.folder / name
    folder.mkdir(exist_ok=True)
    path = folder / "policy.yaml"
    path.write_text(json.dumps(policy))  # JSON is YAML, and needs no writer of our own
    file = folder / "penstock.toml"
    settings = {"process.workers": 1, **settings}
    further = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    file.write_text(
        f'policy.document = "{path}"\nprocess.runtime_dir = "{folder}"\ntelemetry.log.level = "warning"\n'
        f'public.listen = "127.0.0.1:0"\nadmin.listen = "127.0.0.1:0"\n{further}'
    )
    process = await bench.start(
        name or "gateway", module, ["gateway", "--config", str(file), "--log-level", "info"], cores
    )
    listening: dict[str, int] = {}

    async def is_listening() -> bool:
        for line in process.json_lines():
            if line.get("event") == "started":
                found = line["listening"]
                assert isinstance(found, dict)
                listening.update({name: int(addresses[0].rpartition(":")[2]) for name, addresses in found.items()})
        return bool(listening)

    await process.wait_until(is_listening, _READY_TIMEOUT_S)
    public = Address(port=listening["public"])
    await process.wait_until(lambda: _is_ready(public, "/readyz"), _READY_TIMEOUT_S)
    return Server(process=process, address=public, admin=Address(port=listening["admin"]))


async def start_engine(
    bench: Workbench, model_dir: Path, *flags: str, cores: set[int] | None = None, name: str = "engine"
) -> Server:
    """An engine that serves a model folder on a TCP port of its choice; the model is called `bench`."""
    arguments = ["--model", str(model_dir), "--name", "bench", "--listen", "127.0.0.1:0", *flags]
    process = await bench.start(name, "engine", arguments, cores)
    ports: list[int] = []

    async def is_announced() -> bool:
        ports.extend(int(port) for port in re.findall(r"^engine: .*:(\d+)$", process.tail(100_000), re.MULTILINE))
        return bool(ports)

    await process.wait_until(is_announced, _READY_TIMEOUT_S)
    address = Address(port=ports[0])
    await process.wait_until(lambda: _is_ready(address, "/readyz"), _ENGINE_READY_TIMEOUT_S)
    return Server(process=process, address=address, admin=address)


async def _is_ready(address: Address, path: str) -> bool:
    status, _ = await asyncio.wait_for(fetch(address, path), 5.0)
    return status == 200


async def metric(address: Address, name: str) -> float:
    """The sum of a metric's samples over all labels, or over those that `name` fixes as in `x_total{state="queued"}`.

    0 without samples (a gauge by label has none while it counts nothing). Raises KeyError for a metric that the
    server does not declare, so that a changed name cannot pass for a zero.
    """
    _, text = await fetch(address, "/metrics")
    base = name.partition("{")[0]
    if f"# TYPE {base} " not in text and f"# TYPE {base.removesuffix('_total')} " not in text:
        raise KeyError(base)
    starts = (name + " ",) if name.endswith("}") else (name + " ", name + "{")
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(starts))


def chat_body(model: str, text: str, **fields: object) -> bytes:
    """A chat request with one user message."""
    return json.dumps({"model": model, "messages": [{"role": "user", "content": text}], **fields}).encode()

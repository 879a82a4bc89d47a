"""Whether `penstock diagnose` names the right stage: one cause after the other is injected into a running product.

Each cause gets a gateway and an engine of its own: light traffic of two tenants first, so that there is a baseline,
then the cause, and the diagnosis of the seconds that follow. Right is the stage and the cause, and nothing else. The
last case injects nothing, and nothing must be found.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadtests.cache.similar import NUM_WORDINGS, questions, until_encoding
from loadtests.clients.closed_loop import run_closed_loop
from loadtests.clients.http_client import Address, LoadConnection, request_bytes
from loadtests.engines.slow_path import SlowPath
from loadtests.harness.card import Card
from loadtests.harness.processes import Process, ProcessFailed, Workbench
from loadtests.harness.stack import Server, chat_body, start_gateway_with

_TENANTS = ("one", "two")
_BASELINE_CHARS = 800
_LONG_CHARS = 24_000
_ENGINE_TIMEOUT_S = 30.0
_ENCODER_PAUSE_MS = 400.0
_PAUSE_FILE = "encoder.pause"  # as loadtests.gateway.slow_encoder searches for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cause: what changes, and what must be stated of it."""

    name: str
    stage: str = ""
    """Empty: nothing is wrong."""
    knobs: Mapping[str, float] = field(default_factory=dict)
    """Of the engine, from the injection on."""
    base_knobs: Mapping[str, float] = field(default_factory=dict)
    """Of the engine, from its start on."""
    loads: tuple[int, int] = (2, 2)
    """Connections of each tenant after the injection."""
    chars: int = _BASELINE_CHARS
    base_chars: int = _BASELINE_CHARS
    permits: int = 64
    slo_ms: int | None = None
    """The lane's target for the first token, and what cannot keep it is refused."""
    act: str = ""
    """What else happens: `restart`, `stop`, `latency`, `stall`, `store`, `encoder`."""
    sends_alike: bool = False
    """Tenants call cached prompts in other words, and the route gives similar answers."""


CASES = (
    Case(name="limit", stage="queue", permits=4, loads=(12, 12)),
    Case(name="engine_full", stage="queue", base_knobs={"max_num_seqs": 4}, loads=(12, 12)),
    Case(name="one_tenant", stage="queue", permits=8, loads=(1, 40)),
    Case(name="admission", stage="queue", chars=40_000, slo_ms=60),
    Case(name="prompt_size", stage="preprocessing", chars=3_000_000, base_knobs={"prefill_us": 0.0}, loads=(1, 0)),
    Case(name="tokenizer", stage="preprocessing", knobs={"tokenize_ms": 120.0}),
    Case(name="encoder", stage="preprocessing", act="encoder", base_knobs={"tokenize_ms": 150.0}, sends_alike=True),
    Case(name="long_prompts", stage="prefill", chars=40_000),
    Case(
        name="prefix_misses", stage="prefill",
        chars=_LONG_CHARS, base_chars=_LONG_CHARS, base_knobs={"prefix_ratio": 0.9}, knobs={"prefix_ratio": 0.05},
    ),
    Case(name="slow_prefill", stage="prefill", knobs={"prefill_us": 600.0}),
    Case(name="kv_headroom", stage="prefill", knobs={"kv_tokens": 900}, loads=(8, 8)),
    Case(name="cold_start", stage="prefill", act="restart"),
    Case(name="slow_decode", stage="decode", knobs={"step_ms": 24.0}),
    Case(name="num_seqs", stage="decode", base_knobs={"max_num_seqs": 20, "sequence_ms": 1.0}, loads=(9, 9)),
    Case(name="output_length", stage="decode", knobs={"output_tokens": 60}),
    Case(name="preemption", stage="decode", knobs={"preempt_ratio": 0.6}),
    Case(name="speculation", stage="decode", knobs={"drafts": 4, "accept_ratio": 0.05, "draft_ms": 4.0}),
    Case(name="deployment_down", stage="network", act="stop"),
    Case(name="path", stage="network", act="latency"),
    Case(name="loop_lag", stage="gateway", act="stall"),
    Case(name="store", stage="gateway", act="store"),
    Case(name="nothing"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--only", nargs="*", choices=[case.name for case in CASES], help="these causes (default all)")
    parser.add_argument("--baseline-seconds", type=float, default=4.0, help="before each cause (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="that are diagnosed (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Inject and call."""
    cases = [case for case in CASES if not options.only or case.name in options.only]
    right, notes = 0, []
    for case in cases:
        findings = await _findings_of(case, options)
        expected = {(case.stage, case.name)} if case.stage else set[tuple[str, str]]()
        is_right = set(findings) == expected and len(findings) == len(expected)
        right += is_right
        heard = ", ".join(f"{stage}/{cause}" for stage, cause in findings) or "nothing"
        notes.append(f"{case.name:<14} {'right' if is_right else 'WRONG'}   {heard}")
    wrong = len(cases) - right
    return Card(
        bench="diagnose",
        arrivals="closed loops of two tenants, 2 connections each, more where the cause is load",
        results={
            "causes": sum(1 for case in cases if case.stage),
            "cases": len(cases),
            "right": right,
            "wrong": wrong,
            "baseline_s": options.baseline_seconds,
            "window_s": options.seconds,
        },
        notes=tuple(notes),
        failed=f"{wrong} of {len(cases)} were not named" if wrong else None,
    )


async def _findings_of(case: Case, options: argparse.Namespace) -> list[tuple[str, str]]:
    """(stage, cause) of every finding."""
    async with AsyncExitStack() as stack:
        bench = await stack.enter_async_context(Workbench())
        store = await stack.enter_async_context(_redis(bench.folder)) if case.act == "store" else None
        engine = await _start_engine(bench, case)
        path = await stack.enter_async_context(SlowPath(str(bench.folder / "engine.sock")))
        gateway = await start_gateway_with(
            bench,
            _policy(case, path.url),
            settings={} if store is None else {"store.address": store.url},
            module="loadtests.gateway.slow_encoder" if case.act == "encoder" else "gateway",
        )
        if case.sends_alike:
            await _keep_questions(gateway)
        await _load(gateway.address, (2, 2), _requests(case, case.base_chars), options.baseline_seconds)
        acts: dict[str, Callable[[], Awaitable[None]]] = {
            "restart": lambda: _restart(bench, case, engine),
            "stop": engine.stop,
            "latency": lambda: _delay(path),
            "stall": lambda: _stall(gateway, options.seconds),
            "store": lambda: _lose(store),
            "encoder": lambda: _hold_encoder(bench.folder),
            "": lambda: _control(bench.folder, case.knobs),
        }
        load = asyncio.create_task(
            _load(gateway.address, case.loads, _requests(case, case.chars), options.seconds + 2.0)
        )
        act = asyncio.create_task(_run(acts[case.act]))
        await asyncio.sleep(0.5 if case.act != "restart" else 0.0)
        token = (bench.folder / "admin.token").read_text().strip()
        found = json.loads(await _get(gateway.admin, f"/admin/api/diagnosis?seconds={options.seconds:g}", token))
        await asyncio.gather(load, act)
        return [(finding["stage"], finding["cause"]) for finding in found["findings"]]


async def _run(act: Callable[[], Awaitable[None]]) -> None:
    await act()


def _key(tenant: str) -> str:
    return f"sk-penstock-{tenant}"


def _policy(case: Case, url: str) -> dict[str, object]:
    keys = [
        {"id": name, "keys": [{"id": "k", "sha256": hashlib.sha256(_key(name).encode()).hexdigest()}]}
        for name in _TENANTS
    ]
    return {
        "schema_version": 1,
        "deployments": [{"id": "engine", "url": url, "model": "staged", "limits": {"max_in_flight": case.permits}}],
        "lanes": [{"id": "interactive", "max_queue": 1000, **_targets(case)}],
        "tenants": keys,
        "routes": [{"id": "all", "select": {"candidates": ["engine"]}, **_cache(case)}],
    }


def _cache(case: Case) -> dict[str, object]:
    similar = {"mode": "exact_then_semantic", "max_error_ratio": 0.05, "audit_ratio": 0.0, "ttl_s": 600}
    return {"cache": similar} if case.sends_alike else {}


def _targets(case: Case) -> dict[str, object]:
    return {} if case.slo_ms is None else {"slo": {"ttft_p95_ms": case.slo_ms}, "on_overload": ["shed"]}


async def _load(
    address: Address, connections: tuple[int, int], requests: Mapping[str, Sequence[bytes]], seconds: float
) -> None:
    loops = [
        run_closed_loop(address, requests[tenant], num_connections=count, seconds=seconds)
        for tenant, count in zip(_TENANTS, connections, strict=True)
    ]
    await asyncio.gather(*loops)


def _requests(case: Case, chars: int) -> dict[str, list[bytes]]:
    """What each tenant calls, in turn."""
    if case.sends_alike:
        texts = [text for wording in range(1, NUM_WORDINGS) for text in questions(wording)]
    else:
        texts = [" ".join(f"word{number}" for number in range(chars // 8))[:chars]]
    return {tenant: [_request(tenant, text) for text in texts] for tenant in _TENANTS}


def _request(tenant: str, text: str) -> bytes:
    body = chat_body("auto", text, stream=True, stream_options={"include_usage": True})
    return request_bytes("POST", "/v1/chat/completions", body, headers=_authorization(tenant))


def _authorization(tenant: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {_key(tenant)}"),)


async def _keep_questions(gateway: Server) -> None:
    """In their first wording, of each tenant; once the encoder is there."""
    for tenant in _TENANTS:
        await until_encoding(gateway.address, gateway.admin, "auto", _authorization(tenant), stream=True)
        requests = [_request(tenant, text) for text in questions(0)]
        await run_closed_loop(gateway.address, requests, num_connections=1, num_requests=len(requests))


async def _start_engine(bench: Workbench, case: Case, *, cold_requests: int = 0) -> Process:
    path = bench.folder / "engine.sock"
    path.unlink(missing_ok=True)
    knobs = json.dumps({**case.base_knobs, "cold_requests": cold_requests})
    process = await bench.start("engine", "loadtests.engines.staged_engine", ["--listen", str(path), "--knobs", knobs])

    async def is_ready() -> bool:
        return bool(await _get(Address(path=str(path)), "/readyz"))

    await process.wait_until(is_ready, _ENGINE_TIMEOUT_S)
    return process


async def _get(address: Address, path: str, token: str = "") -> str:
    connection = await LoadConnection.open(address, keep_body=True)
    headers = (("authorization", f"Bearer {token}"),) if token else ()
    try:
        exchange = await connection.exchange(request_bytes("GET", path, headers=headers))
        if not exchange.is_ok:
            raise ProcessFailed(f"GET {path}: {exchange.error or exchange.status} {connection.scanner.content!r}")
        return connection.scanner.content.decode()
    finally:
        connection.close()


# What goes wrong


async def _control(folder: Path, knobs: Mapping[str, float]) -> None:
    if knobs:
        connection = await LoadConnection.open(Address(path=str(folder / "engine.sock")))
        await connection.exchange(request_bytes("POST", "/control", json.dumps(knobs).encode()))
        connection.close()


async def _hold_encoder(folder: Path) -> None:
    (folder / _PAUSE_FILE).write_text(str(_ENCODER_PAUSE_MS))


async def _restart(bench: Workbench, case: Case, engine: Process) -> None:
    await asyncio.sleep(0.5)
    await engine.stop()
    await _start_engine(bench, case, cold_requests=60)


async def _delay(path: SlowPath) -> None:
    path.latency_s = 0.06


async def _stall(gateway: Server, seconds: float) -> None:
    """The gateway gets the processor for half of the time, as on a machine that is guaranteed to too many."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        os.kill(gateway.process.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(0.3)
        finally:
            os.kill(gateway.process.pid, signal.SIGCONT)
        await asyncio.sleep(0.3)


@dataclass(frozen=True, slots=True)
class _Redis:
    process: asyncio.subprocess.Process
    url: str


@asynccontextmanager
async def _redis(folder: Path) -> AsyncIterator[_Redis]:
    """A Redis of its own. Raises ProcessFailed where none is installed."""
    program = shutil.which("redis-server")
    if program is None:
        raise ProcessFailed("the cause `store` needs redis-server; install it or leave the cause out with --only")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["--port", str(port), "--save", "", "--dir", str(folder), "--bind", "127.0.0.1"]
    process = await asyncio.create_subprocess_exec(program, *arguments, stdout=asyncio.subprocess.DEVNULL)
    try:
        for _ in range(400):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.05)
        yield _Redis(process, f"redis://127.0.0.1:{port}/0")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _lose(store: _Redis | None) -> None:
    assert store is not None
    store.process.kill()
    await store.process.wait()

"""`penstock capacity`: from a peak, targets and a measured engine to replicas, memory and GPU hours."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import msgspec

from gateway.capacity.engine import EngineFigures, FiguresMissing, figures_of_load, terms_of_steps
from gateway.capacity.plan import Demand, Hardware, Impossible, Targets, plan_capacity
from gateway.capacity.worksheet import render_plan
from gateway.cli.admin_client import START_REMEDY
from gateway.cli.commands import CommandError, UsageError, settings

_TIMEOUT_S = 10.0
_LISTENERS = ("public", "admin")
"""Usual names of the gateway's own sockets, which are no engines."""


def capacity(options: argparse.Namespace) -> int:
    """Print the worksheet, or the plan as JSON."""
    demand = Demand(
        requests_per_s=_positive(options.rps, "--rps"),
        prompt_tokens=int(_positive(options.prompt_tokens, "--prompt-tokens")),
        output_tokens=int(_positive(options.output_tokens, "--output-tokens")),
        prefix_hit_ratio=options.prefix_hits,
        cache_hit_ratio=options.cache_hits,
        mean_ratio=options.mean_ratio,
    )
    if options.headroom >= 1.0:
        raise UsageError("--headroom: expected less than 1, got 1")
    targets = Targets(
        ttft_p95_s=_seconds(options.ttft_p95_ms, "--ttft-p95-ms"), tpot_s=_seconds(options.tpot_ms, "--tpot-ms")
    )
    kv_bytes = options.kv_bytes_per_token
    for flag in ("gpus", "cores"):
        if (given := getattr(options, f"{flag}_per_replica")) is not None:
            _positive(given, f"--{flag}-per-replica")
    kv_bytes_per_token = None if kv_bytes is None else _positive(kv_bytes, "--kv-bytes-per-token")
    try:
        engine = _figures(options)
        hardware = _hardware(options, engine, kv_bytes_per_token)
        found = plan_capacity(demand, targets, engine, hardware, headroom_ratio=options.headroom)
    except (FiguresMissing, Impossible) as error:
        raise CommandError(str(error)) from error
    if options.json:
        document = {"plan": found, "demand": demand, "targets": targets, "engine": engine, "hardware": hardware}
        print(msgspec.json.encode(document).decode())
    else:
        print(render_plan(found, demand, targets, engine))
    return 0


def _hardware(options: argparse.Namespace, engine: EngineFigures, kv_bytes_per_token: float | None) -> Hardware:
    """Return what a replica computes on: what was given, else cores for an engine that was measured on a CPU."""
    is_cpu = engine.device == "cpu" and options.gpus_per_replica is None
    if options.cores_per_replica is not None or is_cpu:
        cores = options.cores_per_replica or float(max(1, engine.num_threads))
        return Hardware(unit="core", units=cores, kv_bytes_per_token=kv_bytes_per_token)
    return Hardware(units=options.gpus_per_replica or 1.0, kv_bytes_per_token=kv_bytes_per_token)


def _figures(options: argparse.Namespace) -> EngineFigures:
    if options.load is not None:
        return figures_of_load(_read(options.load))
    if options.steps is None:
        return figures_of_load(_first_event(engine_address(options)))
    missing = [
        f"--{name.replace('_', '-')}"
        for name in ("prefill_token_us", "max_num_seqs", "step_tokens", "kv_tokens")
        if getattr(options, name) is None
    ]
    if missing:
        raise UsageError(f"--steps measures decode alone; give {', '.join(missing)} too")
    for name in ("max_num_seqs", "step_tokens", "kv_tokens"):
        _positive(getattr(options, name), f"--{name.replace('_', '-')}")
    prefill_token_s = _positive(options.prefill_token_us, "--prefill-token-us") / 1e6
    try:
        document = _read(options.steps)
        steps = terms_of_steps(document, prefill_token_s=prefill_token_s)
    except (KeyError, TypeError) as error:
        raise CommandError(f"{options.steps}: this is not the JSON of penstock engine steps ({error})") from error
    return EngineFigures(
        steps=steps,
        max_num_seqs=options.max_num_seqs,
        step_tokens=options.step_tokens,
        kv_tokens=options.kv_tokens,
        device=str(document.get("card", "")),
        num_threads=int(document.get("num_threads", 0)),
    )


def engine_address(options: argparse.Namespace) -> str:
    """Return the address of an engine: as given, or that of the one with this name in the runtime directory.

    Raises:
        CommandError: No engine runs there.
        UsageError: Several run there, and none was named.
    """
    given: str | None = options.engine
    if given is not None and ("/" in given or ":" in given):
        return given
    folder = settings(options).process.runtime_dir
    names = sorted(path.stem for path in folder.glob("*.sock") if path.stem not in _LISTENERS)
    if given is None and len(names) > 1:
        raise UsageError(f"--engine: {' and '.join(names)} run in {folder}; name one")
    if not names or (given is not None and given not in names):
        what = "no engine" if given is None else f"no engine '{given}'"
        known = f"; known: {', '.join(names)}" if names else f"; {START_REMEDY}"
        raise CommandError(f"{what} runs in {folder}{known}")
    return f"unix:{folder / f'{given or names[0]}.sock'}"


def _first_event(address: str) -> Any:
    """Return the first load report of the engine's feed. Raises CommandError."""
    import httpx

    is_unix = address.startswith("unix:")
    transport = httpx.HTTPTransport(uds=address.removeprefix("unix:") if is_unix else None)
    url = "http://engine/engine/load" if is_unix else f"{address.rstrip('/')}/engine/load"
    try:
        with httpx.Client(transport=transport, timeout=_TIMEOUT_S) as client, client.stream("GET", url) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    return json.loads(line[6:])
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CommandError(f"no engine answers at {address} ({error}); {START_REMEDY}") from error
    raise CommandError(f"{address} has no load feed; it is not a Penstock engine")


def _read(path: Path) -> Any:
    """Return the last line that is a JSON object: benches and tools print text before it. Raises CommandError."""
    try:
        lines = path.read_text().strip().splitlines()
        whole = "\n".join(lines)
        return json.loads(whole if whole.startswith("{") and len(lines) > 1 and lines[0] == "{" else lines[-1])
    except (OSError, ValueError, IndexError) as error:
        raise CommandError(f"{path}: cannot be read as JSON ({error})") from error


def _positive(value: float, flag: str) -> float:
    if not 0 < value < math.inf:
        raise UsageError(f"{flag}: expected a positive number, got {value:g}")
    return value


def _seconds(milliseconds: float | None, flag: str) -> float | None:
    return None if milliseconds is None else _positive(milliseconds, flag) / 1e3

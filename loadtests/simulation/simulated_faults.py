"""Thousands of seeds of lost, late, reordered and cancelled events: each in a process of its own, each repeatable.

Every seed begins with the same gateway, built once and forked, so that a seed that failed among thousands fails alone:
`penstock bench simulate --scenario faults --seed S --seeds 1`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

from loadtests.harness.card import Card
from loadtests.harness.processes import Process, Workbench

_DEFAULT_SEEDS: Final = 2000
_WARM_UP_SEEDS: Final = 10
_HANG_S: Final = 60
"""Seconds of computing, and further ones for each 100 requests, after which a seed has not ended by itself."""
_STARVED: Final = 20
"""Real seconds for each second of computing: others may have the machine."""
_MAX_SHOWN: Final = 10
_FEW_REQUESTS: Final = 100
_GATEWAYS: Final = 8
"""Gateways that a child has, one for each of so many seeds: most of what a fork costs is paid once for all."""


class Runner(Protocol):
    """One gateway for one seed."""

    def run(self, seed: int, num_requests: int) -> Any:
        """The verdict, a dataclass."""


async def run_faults(options: argparse.Namespace) -> Card:
    """Run all seeds, spread over processes."""
    num_seeds = _DEFAULT_SEEDS if options.seeds is None else options.seeds
    num_jobs = max(1, min(options.jobs or len(os.sched_getaffinity(0)), num_seeds))
    began_at = time.perf_counter()
    async with Workbench() as bench:
        workers = []
        for job in range(num_jobs):
            numbers = (options.seed + job, options.seed + num_seeds, num_jobs, options.per_seed)
            arguments = [str(number) for number in numbers]
            workers.append(await bench.start(f"faults{job}", "loadtests.simulation.simulated_faults", arguments))
        while any(worker.is_running for worker in workers):
            await asyncio.sleep(0.1)
        lines = [line for worker in workers for line in _lines_of(worker)]
    return _card(options, num_seeds, lines, time.perf_counter() - began_at)


def _lines_of(worker: Process) -> list[dict[str, Any]]:
    """What a worker printed; its last line has the totals."""
    lines: list[dict[str, Any]] = list(worker.json_lines())
    if not lines or "num_seeds" not in lines[-1]:
        lines.append({"seed": None, "problems": [f"{worker.name} ended early: {worker.tail()}"]})
    return lines


def _card(options: argparse.Namespace, num_seeds: int, lines: Sequence[dict[str, Any]], wall_s: float) -> Card:
    totals = [line for line in lines if "num_seeds" in line]
    bad = sorted((line for line in lines if "problems" in line), key=lambda line: line["seed"] or 0)
    notes = []
    for line in bad[:_MAX_SHOWN]:
        notes.append(f"seed {line['seed']}: {'; '.join(line['problems'][:3])}")
        again = f"--scenario faults --seeds 1 --seed {line['seed']} --per-seed {options.per_seed}"
        notes.append(f"  again: penstock bench simulate {again}")
    done = sum(line["num_seeds"] for line in totals)
    failed = f"{len(bad)} of {num_seeds} seeds failed" if bad else None
    if failed is None and done != num_seeds:
        failed = f"{done} of {num_seeds} seeds ran"
    crossed = sum("received bytes of" in text for line in bad for text in line["problems"])
    return Card(
        bench="simulate",
        arrivals=f"faults, {options.per_seed} requests a seed, virtual time",
        results={
            "seeds": done,
            "first_seed": options.seed,
            "failed_seeds": len(bad),
            "requests": sum(line["num_requests"] for line in totals),
            "upstream_attempts": sum(line["num_attempts"] for line in totals),
            "bytes_searched": sum(line["num_bytes"] for line in totals),
            "cross_tenant_responses": crossed,
            "wall_s": wall_s,
        },
        notes=tuple(notes),
        failed=failed,
    )


def main(argv: Sequence[str]) -> None:
    """Worker: run every `step`-th seed from `first` to before `end`, and print a line for each that failed."""
    from loadtests.simulation.fault_run import FaultRun

    first, end, step, num_requests = map(int, argv)
    seeds = range(first, end, step)
    with tempfile.TemporaryDirectory(prefix="pstk") as folder:
        with contextlib.closing(FaultRun(Path(tempfile.mkdtemp(dir=folder)))) as warm:
            for seed in range(_WARM_UP_SEEDS):  # code that ran before is faster in every child
                warm.run(seed, 12)
        runs = [FaultRun(Path(tempfile.mkdtemp(dir=folder))) for _ in range(min(_GATEWAYS, len(seeds)))]
        gc.collect()
        gc.freeze()
        totals = {"num_seeds": 0, "num_requests": 0, "num_attempts": 0, "num_bytes": 0}
        for at in range(0, len(seeds), len(runs)):
            for verdict in verdicts_of(runs, seeds[at : at + len(runs)], num_requests):
                totals["num_seeds"] += 1
                for name in ("num_requests", "num_attempts", "num_bytes"):
                    totals[name] += verdict.get(name, 0)
                if verdict["problems"]:
                    print(json.dumps(verdict), flush=True)
        print(json.dumps(totals), flush=True)


def verdicts_of(runs: Sequence[Runner], seeds: Sequence[int], num_requests: int) -> list[dict[str, Any]]:
    """The verdict on each seed, from a process that begins as this one is; each seed has a gateway of its own there."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        if num_requests <= _FEW_REQUESTS:
            gc.disable()  # its memory goes with the process
        with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "wb", buffering=0) as pipe:
            for run, seed in zip(runs, seeds, strict=False):
                pipe.write(_verdict(run, seed, num_requests))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found: list[dict[str, Any]] = [json.loads(line) for line in pipe]
    os.waitpid(child, 0)
    if len(found) == len(seeds):
        return found
    found.append({"seed": seeds[len(found)], "problems": ["it did not end"]})
    rest = seeds[len(found) :]
    return found + (verdicts_of(runs, rest, num_requests) if rest else [])


def _verdict(run: Runner, seed: int, num_requests: int) -> bytes:
    """One line; a run that hangs ends the process."""
    limit_s = _HANG_S + num_requests * _HANG_S // 100
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    signal.alarm(_STARVED * limit_s)
    try:
        verdict = asdict(run.run(seed, num_requests))
    except BaseException as error:  # whatever it is, it is this seed's
        verdict = {"seed": seed, "problems": [f"{type(error).__name__}: {error}"]}
    return json.dumps(verdict).encode() + b"\n"


if __name__ == "__main__":
    main(sys.argv[1:])

"""How the throughput of a gateway grows with its workers and their cores.

One worker, its client and its upstream share one core; then two workers, two clients and two upstreams share two cores
in the same way. With N times the cores and N times of everything, the ideal is N times the requests. More workers than
cores follow, on both cores: what each request then costs more is the price of having many workers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from dataclasses import dataclass

from loadtests.harness.card import Card
from loadtests.harness.processes import Process, Workbench, raise_fd_limit
from loadtests.harness.stack import Script, Server, start_gateway_with, start_upstream

_READY_S = 60.0
_LINGER_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each loop (default %(default)s)")
    parser.add_argument("--connections", type=int, default=32, help="of each client (default %(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=2, help="loops of each arrangement, in turn (default %(default)s)"
    )
    parser.add_argument("--most", type=int, default=8, help="workers of the last arrangement (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        return Card(bench="workers", arrivals="none", results={}, failed="this bench needs two cores")
    one, two, many = [], [], []
    for _ in range(options.repeats):
        one.append(await _measure(1, cores[:1], options))
        two.append(await _measure(2, cores, options))
        many.append(await _measure(options.most, cores, options))
    return _card(options, one, two, many)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    """What one arrangement did."""

    requests_per_s: float
    cpu_us_per_request: float
    """Of all processes of the gateway."""
    others_cpu_us: float
    """Of the supervisor and the control process alone."""
    p99_ms: float
    num_failed: int


async def _measure(num_workers: int, cores: list[int], options: argparse.Namespace) -> _Loop:
    """Run one loop for each core against a gateway with its workers on these cores."""
    async with Workbench() as bench:
        upstreams = [await start_upstream(bench, Script(), {core}, f"upstream{core}") for core in cores]
        deployments = [
            {"id": f"u{number}", "url": one.admin.url, "model": "scripted", "limits": {"max_in_flight": 100_000}}
            for number, one in enumerate(upstreams)
        ]
        gateway = await start_gateway_with(
            bench,
            {"schema_version": 1, "deployments": deployments},
            settings={"process.workers": num_workers},
            cores=set(cores),
        )
        workers, others = _processes(gateway, num_workers)
        for number, pid in enumerate(workers):
            os.sched_setaffinity(pid, {cores[number % len(cores)]})
        await _loop(bench, gateway, cores, options, seconds=1.0, name="warm")
        before, others_before = _cpu_s([*workers, *others]), _cpu_s(others)
        found = await _loop(bench, gateway, cores, options, seconds=options.seconds, name="loop")
        spent, others_spent = _cpu_s([*workers, *others]) - before, _cpu_s(others) - others_before
    num = max(1, sum(int(str(one["num"])) for one in found))
    return _Loop(
        requests_per_s=sum(float(str(one["requests_per_s"])) for one in found),
        cpu_us_per_request=spent * 1e6 / num,
        others_cpu_us=others_spent * 1e6 / num,
        p99_ms=max(float(str(one["p99_ms"])) for one in found),
        num_failed=sum(int(str(one["num_failed"])) for one in found),
    )


def _processes(gateway: Server, num_workers: int) -> tuple[list[int], list[int]]:
    """Return the processes that serve, and the others."""
    if num_workers == 1:
        return [gateway.process.pid], []
    started = {
        str(line["process"]): int(str(line["pid"]))
        for line in gateway.process.json_lines()
        if line.get("event") == "process_started"
    }
    return [started[f"worker-{number}"] for number in range(1, num_workers + 1)], [
        started["control"],
        gateway.process.pid,
    ]


async def _loop(
    bench: Workbench, gateway: Server, cores: list[int], options: argparse.Namespace, *, seconds: float, name: str
) -> list[dict[str, object]]:
    """Run a client on each core at the same time."""
    port = gateway.address.port
    arguments = ["--port", str(port), "--connections", str(options.connections), "--seconds", str(seconds)]
    clients = [
        await bench.start(f"{name}{core}", "loadtests.workers.loop_process", arguments, {core}) for core in cores
    ]
    for client in clients:
        await client.wait_until(lambda client=client: _has_lines(client, 1), _READY_S)  # type: ignore[misc]
    for client in clients:
        client.write_line("go")
    for client in clients:
        await client.wait_until(lambda client=client: _has_lines(client, 2), seconds + _LINGER_S)  # type: ignore[misc]
    found = [client.json_lines()[1] for client in clients]
    await asyncio.gather(*(client.stop() for client in clients))
    return found


async def _has_lines(process: Process, num: int) -> bool:
    return len(process.json_lines()) >= num


def _cpu_s(pids: list[int]) -> float:
    """Return the CPU time of processes so far."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _card(options: argparse.Namespace, one: list[_Loop], two: list[_Loop], many: list[_Loop]) -> Card:
    rate_1, rate_2, rate_many = (sum(loop.requests_per_s for loop in loops) / len(loops) for loops in (one, two, many))
    cpu_1, cpu_2, cpu_many = (sum(loop.cpu_us_per_request for loop in loops) / len(loops) for loops in (one, two, many))
    num_failed = sum(loop.num_failed for loop in (*one, *two, *many))
    return Card(
        bench="workers",
        arrivals=f"closed loop, {options.connections} connections of a client on each core",
        results={
            "requests_per_s_1_worker_1_core": rate_1,
            "requests_per_s_2_workers_2_cores": rate_2,
            "growth_per_worker": rate_2 / rate_1 / 2,
            "cpu_us_per_request_1_worker": cpu_1,
            "cpu_us_per_request_2_workers": cpu_2,
            f"cpu_us_per_request_{options.most}_workers": cpu_many,
            f"requests_per_s_{options.most}_workers_2_cores": rate_many,
            "supervisor_and_control_cpu_us_per_request": sum(loop.others_cpu_us for loop in two) / len(two),
            "p99_ms_1_worker": max(loop.p99_ms for loop in one),
            "p99_ms_2_workers": max(loop.p99_ms for loop in two),
            "failed_requests": num_failed,
        },
        notes=("each core has a worker, its client and its upstream; the client and the upstream cost CPU as well",),
        failed=f"{num_failed} requests failed" if num_failed else None,
    )

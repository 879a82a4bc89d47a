"""How the throughput of a gateway grows with its workers and their cores.

One worker, its client and its upstream share one core. Then two workers, two clients and two upstreams share two cores
in the same way, and beside them two gateways of one process each, which share nothing: the ideal that two workers can
reach, whatever else the machine does. More workers than cores follow, on both cores: what each request then costs more
is the price of having many workers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from dataclasses import dataclass
from statistics import median

from loadtests.harness.card import Card
from loadtests.harness.process_usage import cpu_s
from loadtests.harness.processes import Process, Workbench, raise_fd_limit
from loadtests.harness.stack import Script, Server, start_gateway_with, start_upstream

_READY_S = 60.0
_LINGER_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each loop (default %(default)s)")
    parser.add_argument("--connections", type=int, default=32, help="of each client (default %(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=4, help="loops of each arrangement, in turn (default %(default)s)"
    )
    parser.add_argument("--most", type=int, default=4, help="workers of the last arrangement (default %(default)s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrangement:
    """Gateways that run, and the clients' ports and cores."""

    ports: list[int]
    cores: list[int]
    workers: list[int]
    """Processes that serve."""
    others: list[int]
    """Supervisors and control processes."""


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


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        return Card(bench="workers", arrivals="none", results={}, failed="this bench needs two cores")
    async with Workbench() as bench:
        found = await _arrange(bench, cores, options.most)
        loops: dict[str, list[_Loop]] = {name: [] for name in found}
        for name, arrangement in found.items():
            await _measure(bench, arrangement, options, name=f"warm-{name}")
        for number in range(options.repeats):  # in turn, so that all see the same machine
            for name, arrangement in found.items():
                loops[name].append(await _measure(bench, arrangement, options, name=f"{name}-{number}"))
    return _card(options, **{name: _median(several) for name, several in loops.items()})


async def _arrange(bench: Workbench, cores: list[int], most: int) -> dict[str, _Arrangement]:
    """Start upstreams and gateways."""
    upstreams = [await start_upstream(bench, Script(), {core}, f"upstream{core}") for core in cores]
    deployments = [
        {"id": f"u{number}", "url": one.admin.url, "model": "scripted", "limits": {"max_in_flight": 100_000}}
        for number, one in enumerate(upstreams)
    ]
    policy = {"schema_version": 1, "deployments": deployments}
    alone = [await _start(bench, policy, 1, [core], f"gateway{core}") for core in cores]
    return {
        "one": alone[0],
        "separate": _Arrangement(
            ports=[each.ports[0] for each in alone],
            cores=cores,
            workers=[each.workers[0] for each in alone],
            others=[],
        ),
        "two": await _start(bench, policy, 2, cores, "two"),
        "many": await _start(bench, policy, most, cores, "many"),
    }


async def _start(
    bench: Workbench, policy: dict[str, object], num_workers: int, cores: list[int], name: str
) -> _Arrangement:
    """Start one gateway with its workers on these cores in turn."""
    settings = {"process.workers": num_workers}
    gateway = await start_gateway_with(bench, policy, settings=settings, cores=set(cores), name=name)
    workers, others = await _processes(gateway, num_workers)
    for number, pid in enumerate(workers):
        os.sched_setaffinity(pid, {cores[number % len(cores)]})
    return _Arrangement(ports=[gateway.address.port] * len(cores), cores=cores, workers=workers, others=others)


async def _measure(bench: Workbench, arrangement: _Arrangement, options: argparse.Namespace, *, name: str) -> _Loop:
    """Run one client on each core of an arrangement."""
    pids = [*arrangement.workers, *arrangement.others]
    before, others_before = sum(map(cpu_s, pids)), sum(map(cpu_s, arrangement.others))
    found = await _loop(bench, arrangement, options, name=name)
    spent, others_spent = sum(map(cpu_s, pids)) - before, sum(map(cpu_s, arrangement.others)) - others_before
    num = max(1, sum(int(str(one["num"])) for one in found))
    return _Loop(
        requests_per_s=sum(float(str(one["requests_per_s"])) for one in found),
        cpu_us_per_request=spent * 1e6 / num,
        others_cpu_us=others_spent * 1e6 / num,
        p99_ms=max(float(str(one["p99_ms"])) for one in found),
        num_failed=sum(int(str(one["num_failed"])) for one in found),
    )


async def _processes(gateway: Server, num_workers: int) -> tuple[list[int], list[int]]:
    """Return the processes that serve, and the others."""
    if num_workers == 1:
        return [gateway.process.pid], []

    async def are_logged() -> bool:
        return len(_started(gateway)) == num_workers + 1

    await gateway.process.wait_until(are_logged, _READY_S)
    started = _started(gateway)
    workers = [started[f"worker-{number}"] for number in range(1, num_workers + 1)]
    return workers, [started["control"], gateway.process.pid]


def _started(gateway: Server) -> dict[str, int]:
    """Return the processes that serve so far, by name."""
    return {
        str(line["process"]): int(str(line["pid"]))
        for line in gateway.process.json_lines()
        if line.get("event") == "process_started"
    }


async def _loop(
    bench: Workbench, arrangement: _Arrangement, options: argparse.Namespace, *, name: str
) -> list[dict[str, object]]:
    """Run a client on each core at the same time."""
    shared = ["--connections", str(options.connections), "--seconds", str(options.seconds)]
    clients = [
        await bench.start(f"{name}-{core}", "loadtests.workers.loop_process", ["--port", str(port), *shared], {core})
        for port, core in zip(arrangement.ports, arrangement.cores, strict=True)
    ]
    for client in clients:
        await client.wait_until(lambda client=client: _has_lines(client, 1), _READY_S)  # type: ignore[misc]
    for client in clients:
        client.write_line("go")
    for client in clients:
        await client.wait_until(lambda client=client: _has_lines(client, 2), options.seconds + _LINGER_S)  # type: ignore[misc]
    found = [client.json_lines()[1] for client in clients]
    await asyncio.gather(*(client.stop() for client in clients))
    return found


async def _has_lines(process: Process, num: int) -> bool:
    return len(process.json_lines()) >= num


def _median(loops: list[_Loop]) -> _Loop:
    """Return the medians of an arrangement's loops, and every failure."""
    return _Loop(
        requests_per_s=median(loop.requests_per_s for loop in loops),
        cpu_us_per_request=median(loop.cpu_us_per_request for loop in loops),
        others_cpu_us=median(loop.others_cpu_us for loop in loops),
        p99_ms=median(loop.p99_ms for loop in loops),
        num_failed=sum(loop.num_failed for loop in loops),
    )


def _card(options: argparse.Namespace, *, one: _Loop, separate: _Loop, two: _Loop, many: _Loop) -> Card:
    num_failed = sum(loop.num_failed for loop in (one, separate, two, many))
    return Card(
        bench="workers",
        arrivals=f"closed loop, {options.connections} connections of a client on each core",
        results={
            "requests_per_s_1_worker_1_core": one.requests_per_s,
            "requests_per_s_2_gateways_2_cores": separate.requests_per_s,
            "requests_per_s_2_workers_2_cores": two.requests_per_s,
            f"requests_per_s_{options.most}_workers_2_cores": many.requests_per_s,
            "growth_per_worker": two.requests_per_s / one.requests_per_s / 2,
            "part_of_separate_gateways": two.requests_per_s / separate.requests_per_s,
            "cpu_us_per_request_1_worker": one.cpu_us_per_request,
            "cpu_us_per_request_2_gateways": separate.cpu_us_per_request,
            "cpu_us_per_request_2_workers": two.cpu_us_per_request,
            f"cpu_us_per_request_{options.most}_workers": many.cpu_us_per_request,
            "supervisor_and_control_cpu_us_per_request": two.others_cpu_us,
            "p99_ms_1_worker": one.p99_ms,
            "p99_ms_2_workers": two.p99_ms,
            "failed_requests": num_failed,
        },
        notes=("each core has a worker, its client and its upstream; the client and the upstream cost CPU as well",),
        failed=f"{num_failed} requests failed" if num_failed else None,
    )

"""Whether the gateway's memory grows with the number of requests it has served.

A closed loop sends plain and streamed requests in turn; resident memory is read after every slice. The slope is fitted
over the second half of the slices only: caches and arenas fill up in the first.
"""

from __future__ import annotations

import argparse
import asyncio
import os

from loadtests.clients.closed_loop import run_closed_loop
from loadtests.clients.http_client import clock, request_bytes
from loadtests.harness.card import Card
from loadtests.harness.measures import slope
from loadtests.harness.processes import Workbench, raise_fd_limit, split_cores
from loadtests.harness.stack import Script, chat_body, start_gateway, start_upstream

_NUM_SLICES = 40
_IDLE_S = 4.0  # longer than the gateway keeps idle connections over TCP
_MEBIBYTE = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--requests", type=int, default=200_000, help="in all (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this time, whatever the count")
    parser.add_argument("--connections", type=int, default=32, help="(default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    gateway_cores, other_cores = split_cores()
    async with Workbench() as bench:
        upstream = await start_upstream(bench, Script(num_chunks=4), other_cores)
        gateway = await start_gateway(bench, upstream.address.url, "scripted", cores=gateway_cores)
        if other_cores is not None:
            os.sched_setaffinity(0, other_cores)
        requests = [
            request_bytes("POST", "/v1/chat/completions", chat_body("scripted", "x" * 320, stream=stream))
            for stream in (False, True)
        ]
        fds_before = gateway.process.num_fds()
        points: list[tuple[float, float]] = []
        num_failed = num_done = 0
        stop_at = clock() + options.seconds if options.seconds else float("inf")
        for number in range(_NUM_SLICES):
            if clock() >= stop_at:
                break
            result = await run_closed_loop(
                gateway.address,
                requests[number % 2],
                num_connections=options.connections,
                num_requests=max(1, options.requests // _NUM_SLICES),
                seconds=stop_at - clock() if options.seconds else None,
            )
            num_done += len(result.latencies_s)
            num_failed += result.num_failed
            points.append((float(num_done), gateway.process.rss_bytes()))
        await asyncio.sleep(_IDLE_S)
        num_fds = gateway.process.num_fds() - fds_before
    return _card(options, points, num_done, num_failed, num_fds)


def _card(
    options: argparse.Namespace, points: list[tuple[float, float]], num_done: int, num_failed: int, num_fds: int
) -> Card:
    late = points[len(points) // 2 :]
    return Card(
        bench="memory",
        arrivals=f"closed loop, {options.connections} connections, plain and streamed in turn",
        results={
            "requests": num_done,
            "rss_start_mib": points[0][1] / _MEBIBYTE,
            "rss_end_mib": points[-1][1] / _MEBIBYTE,
            "rss_slope_bytes_per_request": slope(late),
            "file_descriptors_added": num_fds,
            "failed_requests": num_failed,
        },
        failed=f"{num_failed} requests failed" if num_failed else None,
    )

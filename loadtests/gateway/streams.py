"""Many streams at once: whether any is lost, and what the gateway adds to the first token and to the gaps.

Most streams run through the gateway; at the same time a tenth as many run straight to the same upstream, so both see
the same machine and the same load. Every stream is given to be equally long; starts are spread over one chunk interval
times ten, so that chunks do not march in step. That is a thousand new connections a second, and what their first tokens
wait for is the crowd at the door. So, while all of them run, short streams on open connections are requested besides,
both ways in turn: their first tokens wait for the chunks of the others and for nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random

from loadtests.clients.http_client import Address, LoadConnection, clock, request_bytes
from loadtests.clients.timed_streams import StreamGroup, TimedStream, read_stream
from loadtests.harness.card import Card
from loadtests.harness.measures import Latencies
from loadtests.harness.processes import Workbench, raise_fd_limit, split_cores
from loadtests.harness.stack import Script, chat_body, metric, start_gateway, start_upstream

_FIRST_BYTE_MS = 50.0
_NUM_ASKERS = 2
"""Of short streams, each with one connection each way."""
_SHORT_CHUNKS = 2
_PAUSE_S = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each stream (default %(default)s)")
    parser.add_argument("--streams", type=int, default=500, help="through the gateway (default %(default)s)")
    parser.add_argument("--rate", type=float, default=20.0, help="chunks per second of each (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the starts (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    num_chunks = max(2, int(options.seconds * options.rate))
    gateway_cores, other_cores = split_cores()
    async with Workbench() as bench:
        script = Script(first_byte_ms=_FIRST_BYTE_MS, num_chunks=num_chunks, chunks_per_s=options.rate)
        upstream = await start_upstream(bench, script, other_cores)
        gateway = await start_gateway(bench, upstream.admin.url, "scripted", cores=gateway_cores)
        if other_cores is not None:
            os.sched_setaffinity(0, other_cores)
        request = request_bytes("POST", "/v1/chat/completions", chat_body("scripted", "hello", stream=True))
        rng = random.Random(options.seed)
        through, straight = StreamGroup(), StreamGroup()
        late_through, late_straight = StreamGroup(), StreamGroup()
        script_of = f"script:num_chunks={_SHORT_CHUNKS},first_byte_ms={_FIRST_BYTE_MS},chunks_per_s=0"
        short = request_bytes(
            "POST", "/v1/chat/completions", chat_body("scripted", "hello", stream=True, user=script_of)
        )
        spread_s = 10.0 / options.rate
        interval_s = (spread_s, num_chunks / options.rate)  # all have begun; none has ended
        ways = [(gateway.address, through)] * options.streams
        ways += [(upstream.address, straight)] * max(4, options.streams // 10)
        cpu_before = gateway.process.cpu_s()
        await asyncio.gather(
            *(read_stream(address, request, group, num_chunks, rng.uniform(0.0, spread_s)) for address, group in ways),
            *(
                _send_at_intervals(
                    ((gateway.address, late_through), (upstream.address, late_straight)), short, *interval_s, number
                )
                for number in range(_NUM_ASKERS)
            ),
        )
        cpu_s = gateway.process.cpu_s() - cpu_before
        num_left = int(await metric(upstream.admin, "scripted_open"))
    return _card(options, (through, straight), (late_through, late_straight), cpu_s, num_left)


async def _send_at_intervals(
    ways: tuple[tuple[Address, StreamGroup], ...], request: bytes, begin_s: float, end_s: float, number: int
) -> None:
    """Short streams from `begin_s` to `end_s` from now, one at a time on one open connection each way; at least one."""
    end_at = clock() + end_s
    await asyncio.sleep(begin_s + number * _PAUSE_S / _NUM_ASKERS)
    connections = [(await LoadConnection.open(address), group) for address, group in ways]
    while all(connection.is_open for connection, _ in connections):  # what was lost is counted
        for connection, group in connections:
            stream = TimedStream(group)
            stream.finish(await connection.exchange(request, stream.on_piece), _SHORT_CHUNKS)
        if clock() >= end_at:
            break
        await asyncio.sleep(_PAUSE_S)
    for connection, _ in connections:
        connection.close()


def _card(
    options: argparse.Namespace,
    long: tuple[StreamGroup, StreamGroup],
    short: tuple[StreamGroup, StreamGroup],
    cpu_s: float,
    num_left: int,
) -> Card:
    """Of the streams through the gateway and straight, and of the short ones beside them."""
    through, straight = long
    late, late_straight = (Latencies.of(group.ttft_s) for group in short)
    was_measured = late.num_samples > 0 < late_straight.num_samples
    num_lost = through.num_lost + short[0].num_lost
    ttft, ttft_straight = Latencies.of(through.ttft_s), Latencies.of(straight.ttft_s)
    gaps, gaps_straight = Latencies.of(through.gaps_s), Latencies.of(straight.gaps_s)
    problem = f"{num_lost} streams lost ({through.first_loss or short[0].first_loss})" if num_lost else None
    if num_left:
        problem = f"{num_left} streams are still open at the upstream"
    return Card(
        bench="streams",
        arrivals=f"{options.streams} streams of {options.seconds:g} s, {options.rate:g} chunks per s each",
        results={
            "streams": options.streams,
            "lost": num_lost,
            "added_ttft_p50_ms": ttft.p50_ms - ttft_straight.p50_ms,
            "added_ttft_p99_ms": ttft.p99_ms - ttft_straight.p99_ms,
            "running_added_ttft_p50_ms": late.p50_ms - late_straight.p50_ms if was_measured else None,
            "running_added_ttft_p99_ms": late.p99_ms - late_straight.p99_ms if was_measured else None,
            "running_asked": len(short[0].ttft_s),
            "added_gap_p99_ms": gaps.p99_ms - gaps_straight.p99_ms,
            "cpu_us_per_chunk": cpu_s * 1e6 / max(1, through.num_chunks),
            "chunks": through.num_chunks,
        },
        notes=(
            f"first token, straight      {ttft_straight}",
            f"first token, through       {ttft}",
            f"beside them, straight      {late_straight}",
            f"beside them, through       {late}",
            f"gaps, straight             {gaps_straight}",
            f"gaps, through              {gaps}",
        ),
        failed=problem,
    )

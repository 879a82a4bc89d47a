"""Many streams at once: whether any is lost, and what the gateway adds to the first token and to the gaps.

Most streams run through the gateway; at the same time a tenth as many run straight to the same upstream, so both see
the same machine and the same load. Every stream is told to be equally long; starts are spread over one chunk interval
times ten, so that chunks do not march in step.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
from dataclasses import dataclass, field

from loadtests.card import Card
from loadtests.client import Address, Exchange, LoadConnection, clock
from loadtests.measures import Latencies
from loadtests.processes import Workbench, raise_fd_limit, split_cores
from loadtests.stack import Script, chat_body, metric, start_gateway, start_upstream
from loadtests.wire import request_bytes

_FIRST_BYTE_MS = 50.0
_CONTENT_MARK = b'"content":"x'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each stream (default %(default)s)")
    parser.add_argument("--streams", type=int, default=500, help="through the gateway (default %(default)s)")
    parser.add_argument("--rate", type=float, default=20.0, help="chunks per second of each (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the starts (default %(default)s)")


@dataclass(slots=True)
class _Group:
    """Streams that went the same way."""

    ttft_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    num_chunks: int = 0
    num_lost: int = 0
    first_loss: str | None = None


class _Stream:
    """Times the reads of one stream that bring content."""

    def __init__(self, group: _Group) -> None:
        self._group = group
        self._last_at = 0.0
        self.first_at = 0.0
        self.num_chunks = 0

    def on_piece(self, now: float, data: bytes) -> None:
        """One read from the socket; may hold several chunks when the client itself was late."""
        count = data.count(_CONTENT_MARK)
        if not count:
            return
        if self.first_at:
            self._group.gaps_s.append(now - self._last_at)
        else:
            self.first_at = now
        self._last_at = now
        self.num_chunks += count

    def finish(self, exchange: Exchange, num_expected: int) -> None:
        """Add to the group."""
        group = self._group
        group.num_chunks += self.num_chunks
        if self.first_at:
            group.ttft_s.append(self.first_at - exchange.sent_at)
        if not (exchange.is_ok and exchange.has_done and self.num_chunks == num_expected):
            group.num_lost += 1
            said = exchange.error or f"status {exchange.status}, {self.num_chunks} of {num_expected} chunks"
            group.first_loss = group.first_loss or said


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
        chance = random.Random(options.seed)
        through, straight = _Group(), _Group()
        ways = [(gateway.address, through)] * options.streams
        ways += [(upstream.address, straight)] * max(4, options.streams // 10)
        cpu_before = gateway.process.cpu_s()
        await asyncio.gather(
            *(
                _stream(address, request, group, num_chunks, chance.uniform(0.0, 10.0 / options.rate))
                for address, group in ways
            )
        )
        cpu_s = gateway.process.cpu_s() - cpu_before
        num_left = int(await metric(upstream.admin, "scripted_open"))
    return _card(options, through, straight, cpu_s, num_left)


async def _stream(address: Address, request: bytes, group: _Group, num_expected: int, delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    stream = _Stream(group)
    try:
        connection = await LoadConnection.open(address)
    except OSError as error:
        exchange = Exchange(clock(), error=str(error))
    else:
        exchange = await connection.exchange(request, stream.on_piece)
        connection.close()
    stream.finish(exchange, num_expected)


def _card(options: argparse.Namespace, through: _Group, straight: _Group, cpu_s: float, num_left: int) -> Card:
    ttft, ttft_straight = Latencies.of(through.ttft_s), Latencies.of(straight.ttft_s)
    gaps, gaps_straight = Latencies.of(through.gaps_s), Latencies.of(straight.gaps_s)
    problem = f"{through.num_lost} streams lost ({through.first_loss})" if through.num_lost else None
    if num_left:
        problem = f"{num_left} streams are still open at the upstream"
    return Card(
        bench="streams",
        arrivals=f"{options.streams} streams of {options.seconds:g} s, {options.rate:g} chunks per s each",
        results={
            "streams": options.streams,
            "lost": through.num_lost,
            "added_ttft_p50_ms": ttft.p50_ms - ttft_straight.p50_ms,
            "added_ttft_p99_ms": ttft.p99_ms - ttft_straight.p99_ms,
            "added_gap_p99_ms": gaps.p99_ms - gaps_straight.p99_ms,
            "cpu_us_per_chunk": cpu_s * 1e6 / max(1, through.num_chunks),
            "chunks": through.num_chunks,
        },
        notes=(
            f"first token, straight      {ttft_straight}",
            f"first token, through       {ttft}",
            f"gaps, straight             {gaps_straight}",
            f"gaps, through              {gaps}",
        ),
        failed=problem,
    )

"""Loads that every gateway gets: single requests, a closed loop, streams, and clients that leave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from loadtests.clients.closed_loop import run_closed_loop
from loadtests.clients.http_client import Address, Exchange, LoadConnection, clock, request_bytes
from loadtests.clients.timed_streams import StreamGroup, read_stream
from loadtests.harness.measures import Latencies
from loadtests.harness.process_usage import tree_cpu_s
from loadtests.harness.processes import Process
from loadtests.harness.stack import chat_body, metric

_PATH = "/v1/chat/completions"
_PROMPT_CHARS = 320
_CHUNKS_PER_S = 20.0
_OPEN = "scripted_open"
_FREE_LIMIT_S = 5.0
"""An answer that is open longer than this after its client left counts as never freed."""
_ANSWER_S = 20.0
_LONG_STREAM = f"num_chunks={int(_ANSWER_S * _CHUNKS_PER_S)},chunks_per_s={_CHUNKS_PER_S}"
_LATE_ANSWER = f"first_byte_ms={int(_ANSWER_S * 1e3)}"
_POLL_S = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to the upstream: straight, or through a gateway."""

    name: str
    address: Address
    headers: tuple[tuple[str, str], ...] = ()
    process: Process | None = None
    """None: straight to the upstream."""

    def cpu_s(self) -> float:
        """Return the processor time that its gateway has used; 0.0 straight to the upstream."""
        return 0.0 if self.process is None else tree_cpu_s(self.process.pid)

    def request(self, *, stream: bool = False, script: str = "") -> bytes:
        """Return a chat request; `script` names how the upstream answers it."""
        fields = {"user": f"script:{script}"} if script else {}
        body = chat_body("scripted", "x" * _PROMPT_CHARS, **({"stream": True} if stream else {}), **fields)
        return request_bytes("POST", _PATH, body, self.headers)


@dataclass(slots=True)
class Samples:
    """What one way showed, one value a repeat."""

    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    requests_per_s: list[float] = field(default_factory=list)
    cpu_us_per_request: list[float] = field(default_factory=list)
    cpu_us_per_chunk: list[float] = field(default_factory=list)
    first_token_p99_ms: list[float] = field(default_factory=list)
    gap_p99_ms: list[float] = field(default_factory=list)
    cancel_to_free_ms: list[float] = field(default_factory=list)
    plain_cancel_to_free_ms: list[float] = field(default_factory=list)
    num_failed: int = 0
    num_lost: int = 0
    num_never_freed: int = 0
    first_failure: str | None = None

    def note_failure(self, exchange: Exchange) -> None:
        """Remember the first reason."""
        self.first_failure = self.first_failure or exchange.error or f"status {exchange.status}"


async def time_single_requests(way: Way, count: int, samples: Samples) -> None:
    """Send requests one at a time on one connection."""
    request = way.request()
    connection = await LoadConnection.open(way.address)
    latencies = []
    for _ in range(count):
        exchange = await connection.exchange(request)
        if exchange.is_ok:
            latencies.append(exchange.ended_at - exchange.sent_at)
        else:
            samples.num_failed += 1
            samples.note_failure(exchange)
        if not connection.is_open:
            connection = await LoadConnection.open(way.address)
    connection.close()
    found = Latencies.of(latencies)
    samples.p50_ms.append(found.p50_ms)
    samples.p99_ms.append(found.p99_ms)


async def time_closed_loop(way: Way, num_connections: int, seconds: float, samples: Samples) -> None:
    """Keep that many connections busy, and count processor time per request."""
    before = way.cpu_s()
    loop = await run_closed_loop(way.address, way.request(), num_connections=num_connections, seconds=seconds)
    used = way.cpu_s() - before
    samples.num_failed += loop.num_failed
    samples.first_failure = samples.first_failure or loop.first_failure
    samples.requests_per_s.append(loop.requests_per_s)
    samples.cpu_us_per_request.append(used * 1e6 / max(1, len(loop.latencies_s)))


async def time_streams(way: Way, num_streams: int, seconds: float, rng: random.Random, samples: Samples) -> None:
    """Read streams of equal length whose starts are spread over half a second."""
    num_chunks = max(2, int(seconds * _CHUNKS_PER_S))
    request = way.request(stream=True, script=f"num_chunks={num_chunks},chunks_per_s={_CHUNKS_PER_S}")
    group = StreamGroup()
    before = way.cpu_s()
    starts = [rng.uniform(0.0, 0.5) for _ in range(num_streams)]
    await asyncio.gather(*(read_stream(way.address, request, group, num_chunks, delay_s) for delay_s in starts))
    used = way.cpu_s() - before
    samples.num_lost += group.num_lost
    samples.first_failure = samples.first_failure or group.first_loss
    samples.cpu_us_per_chunk.append(used * 1e6 / max(1, group.num_chunks))
    samples.first_token_p99_ms.append(Latencies.of(group.ttft_s).p99_ms)
    samples.gap_p99_ms.append(Latencies.of(group.gaps_s).p99_ms)


async def time_cancels(way: Way, upstream: Address, count: int, samples: Samples, *, stream: bool) -> None:
    """Leave that many answers in the middle, and time until the upstream has none of them open."""
    request = way.request(stream=stream, script=_LONG_STREAM if stream else _LATE_ANSWER)
    clients = [await LoadConnection.open(way.address) for _ in range(count)]
    for client in clients:
        client.start(request, lambda _: None)
    arrived = await _wait_for_open(upstream, count)
    if arrived is None:
        samples.num_failed += 1
        samples.first_failure = samples.first_failure or f"{count} answers did not reach the upstream"
    left_at = clock()
    for client in clients:
        client.close()
    freed_at = await _wait_for_open(upstream, 0)
    times = samples.cancel_to_free_ms if stream else samples.plain_cancel_to_free_ms
    if freed_at is None:
        samples.num_never_freed += int(await metric(upstream, _OPEN))
        await _wait_for_open(upstream, 0, limit_s=_ANSWER_S)  # so that the next load starts clean
    times.append(((freed_at or clock()) - left_at) * 1e3)


async def _wait_for_open(upstream: Address, count: int, *, limit_s: float = _FREE_LIMIT_S) -> float | None:
    """Return the instant at which the upstream answers exactly so many requests, or None at the limit."""
    deadline = clock() + limit_s
    while clock() < deadline:
        if int(await metric(upstream, _OPEN)) == count:
            return clock()
        await asyncio.sleep(_POLL_S)
    return None


def in_turn(ways: Sequence[Way], number: int) -> Sequence[Way]:
    """Return the order of a repeat: forwards and backwards in turn."""
    return ways if number % 2 == 0 else list(reversed(ways))

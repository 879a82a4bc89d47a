"""What open admin pages cost the chat path: one gateway under the same closed loop, without and with pages in turn.

A page is what its browser holds open: a stream of server-sent events from the admin listener, read as it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from loadtests.clients.closed_loop import run_closed_loop
from loadtests.clients.http_client import Address
from loadtests.harness.measures import Latencies
from loadtests.harness.processes import ProcessFailed
from loadtests.harness.stack import Server

_TOPICS: Final = ("overview", "requests", "deployments", "load")
_REPEATS: Final = 8
_PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One stretch of the closed loop."""

    requests_per_s: float
    cpu_us: float
    """Of the gateway's process, a request."""
    p50_ms: float
    p99_ms: float


class Pages:
    """Streams of events, and how many events came."""

    def __init__(self) -> None:
        self.num_events = 0

    async def watch(self, admin: Address, topic: str, is_open: asyncio.Event) -> None:
        """Read one stream for ever; ends by cancellation. Raises ProcessFailed when it is refused or breaks off."""
        reader, writer = await _connect(admin)
        try:
            writer.write(f"GET /admin/api/live?topic={topic} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            while line := await reader.readline():
                if line.startswith(b"event: "):
                    self.num_events += 1
                    is_open.set()
            raise ProcessFailed(f"the stream of {topic} broke off or was refused")
        finally:
            writer.close()


async def _connect(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.path:
        return await asyncio.open_unix_connection(address.path, limit=1 << 20)
    return await asyncio.open_connection("127.0.0.1", address.port, limit=1 << 20)


@asynccontextmanager
async def open_pages(admin: Address, count: int) -> AsyncIterator[Pages]:
    """`count` pages, of all live topics in turn, each of which has had its first event. Raises ProcessFailed."""
    pages = Pages()
    started = [asyncio.Event() for _ in range(count)]
    watching = [
        asyncio.create_task(pages.watch(admin, _TOPICS[number % len(_TOPICS)], is_open))
        for number, is_open in enumerate(started)
    ]
    try:
        ready = asyncio.gather(*(is_open.wait() for is_open in started))
        waited: set[asyncio.Future[Any]] = {ready, *watching}
        await asyncio.wait(waited, timeout=_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            raise ProcessFailed("not every page was sent an event")
        yield pages
    finally:
        for task in watching:
            task.cancel()
        for task in watching:
            with suppress(asyncio.CancelledError):
                await task


async def measure_pages(
    gateway: Server, request: bytes, *, num_pages: int, num_connections: int, seconds: float
) -> tuple[Round, Round]:
    """Without and with pages, medians over repeats in turn, for `seconds` together. Raises ProcessFailed."""
    found: tuple[list[Round], list[Round]] = ([], [])
    round_s = seconds / (2 * (_REPEATS + 1))
    for _ in range(_REPEATS + 1):
        found[0].append(await _round(gateway, request, num_connections, round_s))
        async with open_pages(gateway.admin, num_pages) as pages:
            found[1].append(await _round(gateway, request, num_connections, round_s))
            if pages.num_events < num_pages:
                raise ProcessFailed("pages were sent no events: the comparison means nothing")
    return _middle(found[0][1:]), _middle(found[1][1:])  # the first round of each warms it up


def _middle(repeats: list[Round]) -> Round:
    names = ("requests_per_s", "cpu_us", "p50_ms", "p99_ms")
    return Round(**{name: median(getattr(one, name) for one in repeats) for name in names})


async def _round(gateway: Server, request: bytes, num_connections: int, seconds: float) -> Round:
    before_s = gateway.process.cpu_s()
    loop = await run_closed_loop(gateway.address, request, num_connections=num_connections, seconds=seconds)
    if loop.num_failed:
        raise ProcessFailed(f"{loop.num_failed} requests failed ({loop.first_failure})")
    seen = Latencies.of(loop.latencies_s)
    cpu_us = (gateway.process.cpu_s() - before_s) * 1e6 / max(1, len(loop.latencies_s))
    return Round(requests_per_s=loop.requests_per_s, cpu_us=cpu_us, p50_ms=seen.p50_ms, p99_ms=seen.p99_ms)

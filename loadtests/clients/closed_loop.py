"""Closed loop: a fixed number of connections, each sending its next request when the last one ended."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from loadtests.clients.http_client import Address, LoadConnection, clock


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResult:
    """What a number of requests took."""

    latencies_s: list[float]
    num_failed: int
    wall_s: float
    first_failure: str | None

    @property
    def requests_per_s(self) -> float:
        """Successful ones."""
        return len(self.latencies_s) / self.wall_s if self.wall_s else 0.0


async def run_closed_loop(
    address: Address,
    request: bytes | Sequence[bytes],
    *,
    num_connections: int,
    seconds: float | None = None,
    num_requests: int | None = None,
) -> LoopResult:
    """Until the time or the number of requests is up; at least one of them is given. Of several requests each is sent
    in turn."""
    assert seconds is not None or num_requests is not None
    connections = [await LoadConnection.open(address) for _ in range(num_connections)]
    latencies: list[float] = []
    failures: list[str] = []
    requests = itertools.cycle([request] if isinstance(request, bytes) else request)
    remaining = num_requests if num_requests is not None else 1 << 62
    started_at = clock()
    stop_at = started_at + seconds if seconds is not None else float("inf")

    async def drive(connection: LoadConnection) -> None:
        nonlocal remaining
        while remaining > 0 and clock() < stop_at:
            remaining -= 1
            exchange = await connection.exchange(next(requests))
            if exchange.is_ok:
                latencies.append(exchange.ended_at - exchange.sent_at)
            else:
                failures.append(exchange.error or f"status {exchange.status}")
            if not connection.is_open:
                connection = await LoadConnection.open(address)
        connection.close()

    await asyncio.gather(*map(drive, connections))
    return LoopResult(
        latencies_s=latencies,
        num_failed=len(failures),
        wall_s=clock() - started_at,
        first_failure=failures[0] if failures else None,
    )

"""Streams whose length is known, timed by the reads that bring content."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from loadtests.clients.http_client import Address, Exchange, LoadConnection, clock

_CONTENT_MARKS = (b'"content":"x', b'"content": "x')
"""Content of the scripted upstream, as it sends it and as gateways write it that parse events."""


@dataclass(slots=True)
class StreamGroup:
    """Streams that went the same way."""

    ttft_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    num_chunks: int = 0
    num_lost: int = 0
    first_loss: str | None = None


class TimedStream:
    """Times the reads of one stream that bring content."""

    def __init__(self, group: StreamGroup) -> None:
        self._group = group
        self._last_at = 0.0
        self.first_at = 0.0
        self.num_chunks = 0

    def on_piece(self, now: float, data: bytes) -> None:
        """One read from the socket; may hold several chunks when the client itself was late."""
        count = sum(map(data.count, _CONTENT_MARKS))
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
            loss = exchange.error or f"status {exchange.status}, {self.num_chunks} of {num_expected} chunks"
            group.first_loss = group.first_loss or loss


async def read_stream(address: Address, request: bytes, group: StreamGroup, num_expected: int, delay_s: float) -> None:
    """Read one stream to its end on a connection of its own, after a delay."""
    await asyncio.sleep(delay_s)
    stream = TimedStream(group)
    try:
        connection = await LoadConnection.open(address)
    except OSError as error:
        exchange = Exchange(clock(), error=str(error))
    else:
        exchange = await connection.exchange(request, stream.on_piece)
        connection.close()
    stream.finish(exchange, num_expected)

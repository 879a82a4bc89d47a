"""How busy an engine is, seen from outside through its load feed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from loadtests.clients.http_client import Address, LoadConnection, request_bytes

_REQUEST = request_bytes("GET", "/engine/load")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """The part of one load event that states what is held."""

    num_open: int
    num_running: int
    num_waiting: int
    num_blocks_total: int
    num_blocks_free: int
    num_blocks_leaked: int
    num_kv_tokens: int

    @property
    def num_blocks_held(self) -> int:
        """Blocks that belong to live sequences, or to nobody."""
        return self.num_blocks_total - self.num_blocks_free

    @property
    def is_idle(self) -> bool:
        """Nothing is held."""
        return not (self.num_open or self.num_running or self.num_waiting or self.num_blocks_held)


async def read_load(address: Address) -> EngineLoad:
    """The load now: the first event of a fresh feed. Raises OSError."""
    connection = await LoadConnection.open(address)
    first_event: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    received = bytearray()

    def on_piece(now: float, data: bytes) -> None:
        received.extend(data)
        at = received.find(b"data: ")
        end = received.find(b"\n\n", at)
        if at >= 0 and end >= 0 and not first_event.done():
            first_event.set_result(bytes(received[at + 6 : end]))

    def on_end(exchange: object) -> None:
        if not first_event.done():
            first_event.set_exception(OSError("the load feed ended"))

    connection.start(_REQUEST, on_end, on_piece)
    try:
        values = json.loads(await first_event)
    finally:
        connection.close()
    return EngineLoad(**{name: int(values[name]) for name in EngineLoad.__slots__})

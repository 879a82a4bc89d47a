from __future__ import annotations

import asyncio
import gc
import weakref
from asyncio import Event

import pytest

from gateway.upstreams.http1.errors import InterChunkTimeout, ResponseClosed
from gateway.upstreams.http1.request import ExchangeTimeouts
from tests.gateway.upstreams.conftest import Serve
from tests.gateway.upstreams.scripted import (
    CHUNKED_HEAD,
    LAST_CHUNK,
    NO_TIMEOUTS,
    POST,
    Peer,
    chunk,
    sending_then_waiting,
)

PIECE = b"x" * 16_384
NUM_PIECES = 200  # 3.2 MB: far more than the buffers of both sockets


class Producer:
    """Sends as fast as it is let."""

    def __init__(self) -> None:
        self.num_sent = 0

    async def __call__(self, peer: Peer) -> None:
        peer.writer.transport.set_write_buffer_limits(high=0)
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        for _ in range(NUM_PIECES):
            await peer.send(chunk(PIECE))
            self.num_sent += 1
        await peer.send(LAST_CHUNK)
        await peer.gone()

    async def settled(self) -> int:
        """How many pieces were sent when no more could be."""
        last = -1
        while last != self.num_sent:
            last = self.num_sent
            await asyncio.sleep(0.02)
        return last


async def test_a_slow_reader_pauses_the_producer_and_gets_every_byte(serve: Serve) -> None:
    producer = Producer()
    _, client = await serve(producer)
    response = await client.send(POST, NO_TIMEOUTS)
    assert await producer.settled() < NUM_PIECES // 2
    size = 0
    async for piece in response.chunks():
        size += len(piece)
    assert size == NUM_PIECES * len(PIECE)
    assert client.snapshot().num_idle == 1


@pytest.mark.parametrize("limit_share", [1.0, 1.2, 1.9, 4.0])
async def test_a_paused_body_can_still_be_read_whole(serve: Serve, limit_share: float) -> None:
    body = b"x" * 1500

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD + chunk(body[:1100]))
        await asyncio.sleep(0.01)
        await peer.send(chunk(body[1100:]) + LAST_CHUNK)
        await peer.gone()

    _, client = await serve(script, max_buffer_bytes=1000)
    response = await client.send(POST, NO_TIMEOUTS)
    await asyncio.sleep(0.005)
    async with asyncio.timeout(2):
        assert await response.read(int(len(body) * limit_share)) == body


async def test_a_paused_relay_pauses_the_producer_and_gets_every_byte(serve: Serve) -> None:
    producer = Producer()
    _, client = await serve(producer)
    response = await client.send(POST, NO_TIMEOUTS)
    size_when_paused = size = 0

    def sink(piece: bytes) -> None:
        nonlocal size
        if not size:
            response.pause()
        size += len(piece)

    relay = asyncio.ensure_future(response.relay(sink))
    assert await producer.settled() < NUM_PIECES // 2
    size_when_paused = size
    await asyncio.sleep(0.02)
    assert size == size_when_paused
    response.resume()
    await relay
    assert size == NUM_PIECES * len(PIECE)


async def test_our_own_pause_does_not_count_as_the_upstreams_silence(serve: Serve) -> None:
    producer = Producer()
    _, client = await serve(producer)
    response = await client.send(POST, ExchangeTimeouts(first_byte_s=1.0, inter_chunk_s=0.05))
    await producer.settled()
    await asyncio.sleep(0.1)
    assert len(await response.read(10_000_000)) == NUM_PIECES * len(PIECE)


async def test_silence_after_the_pause_counts_again(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD + chunk(b"a"))
        await peer.gone()

    _, client = await serve(script)
    response = await client.send(POST, ExchangeTimeouts(inter_chunk_s=0.03))
    relay = asyncio.ensure_future(response.relay(lambda piece: None))
    await asyncio.sleep(0.005)
    response.pause()
    await asyncio.sleep(0.06)
    assert not relay.done()
    response.resume()
    with pytest.raises(InterChunkTimeout):
        await relay


async def test_a_paused_connection_is_resumed_before_it_is_used_again(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.send(CHUNKED_HEAD + chunk(b"a"))
            await asyncio.sleep(0.002)
            await peer.send(chunk(b"b") + LAST_CHUNK)

    _, client = await serve(script)
    for _ in range(3):
        response = await client.send(POST, NO_TIMEOUTS)
        await response.relay(lambda piece, response=response: response.pause() if piece == b"b" else None)
        response.resume()
    assert client.snapshot().num_connected_total == 1
    client.check_integrity()


async def test_pausing_and_resuming_are_idempotent_and_harmless_after_the_end(serve: Serve) -> None:
    producer = Producer()
    _, client = await serve(producer)
    response = await client.send(POST, NO_TIMEOUTS)
    for act in (response.pause, response.pause, response.resume, response.resume):
        act()
    await response.read(10_000_000)
    response.pause()
    response.resume()
    response.close()
    response.pause()
    response.resume()


async def test_a_response_that_fails_is_freed_without_the_collector(serve: Serve) -> None:
    _, client = await serve(sending_then_waiting(CHUNKED_HEAD))

    async def read_until_closed() -> weakref.ref[Event]:
        """Read with the response and more in local variables, as callers do."""
        beside = Event()
        response = await client.send(POST, NO_TIMEOUTS)
        asyncio.get_running_loop().call_soon(response.close)
        try:
            await response.read(100)
        except ResponseClosed:
            return weakref.ref(beside)
        raise AssertionError("the response was closed while it was read")

    gc.collect()
    gc.disable()
    try:
        assert (await read_until_closed())() is None
    finally:
        gc.enable()

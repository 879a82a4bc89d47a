"""The shared beat of an upstream: each piece of a body moves it, heads and endings do not."""

from __future__ import annotations

import asyncio
import math

from tests.gateway.upstreams.conftest import Serve
from tests.gateway.upstreams.scripted import NO_TIMEOUTS, POST, Peer


async def test_the_beat_is_the_last_piece_of_any_body_and_no_head(serve: Serve) -> None:
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n")
        await go.wait()
        await peer.send(b"abc")
        await peer.gone()

    _, client = await serve(script)
    async with await client.send(POST, NO_TIMEOUTS) as response:
        assert client.pulse.at == -math.inf, "a head is no part of a body"
        before = asyncio.get_running_loop().time()
        go.set()
        await response.wait_body()
        assert before <= client.pulse.at <= asyncio.get_running_loop().time()

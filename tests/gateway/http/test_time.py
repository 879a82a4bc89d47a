"""Slow clients: every wait for one has an end, and the clock is the server's."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gateway.http.asgi import Receive, Scope, Send, edge_channel
from tests.gateway.http.conftest import ManualClock, StartEdge, get, post, until


async def test_headers_that_never_end_get_408_within_the_header_timeout(
    start_edge: StartEdge, clock: ManualClock
) -> None:
    edge = await start_edge(clock=clock, header__timeout_s=10.0)
    async with edge.connect() as client:
        for byte in b"GET / HTTP/1.1\r\nX-Slow: 12345"[:20]:
            await client.send(bytes([byte]))
        await asyncio.sleep(0.02)
        edge.pass_time(9.0)
        await client.send(b"6")
        await asyncio.sleep(0.02)
        assert edge.server.num_connections["public"] == 1
        edge.pass_time(1.3)
        reply = await client.reply()
        assert (reply.status, reply.error["code"]) == (408, "request_timeout")
        assert await client.rest() == b""
    assert edge.app.num_started == 0


async def test_a_connection_that_sends_nothing_is_closed_after_the_header_timeout(
    start_edge: StartEdge, clock: ManualClock
) -> None:
    edge = await start_edge(clock=clock, header__timeout_s=10.0)
    async with edge.connect() as client:
        await until(lambda: edge.server.num_connections["public"] == 1)
        edge.pass_time(10.3)
        assert await client.rest() == b""


async def test_empty_lines_do_not_prolong_a_connection(start_edge: StartEdge, clock: ManualClock) -> None:
    edge = await start_edge(clock=clock, header__timeout_s=10.0)
    async with edge.connect() as client:
        for _ in range(5):
            await client.send(b"\r\n")
            await asyncio.sleep(0.01)
            edge.pass_time(2.5)
        assert await client.rest() == b""


async def test_an_idle_keep_alive_connection_is_closed_after_its_time(
    start_edge: StartEdge, clock: ManualClock
) -> None:
    edge = await start_edge(clock=clock, connections__idle_keep_alive_s=75.0, connections__write_stall_timeout_s=30.0)
    async with edge.connect() as client:
        await client.call(get())
        for _ in range(7):
            edge.pass_time(10.0)
        assert (await client.call(get())).status == 200
        for _ in range(8):
            edge.pass_time(10.0)
        assert await client.rest() == b""


async def test_a_body_that_takes_too_long_gets_408_and_its_application_a_disconnect(
    start_edge: StartEdge, clock: ManualClock
) -> None:
    types: list[str] = []

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            types.append((await receive())["type"])
            if types[-1] == "http.disconnect":
                return

    edge = await start_edge(handler, clock=clock, body__timeout_s=60.0, body__min_bytes_per_s=0)
    async with edge.connect() as client:
        await client.send(post(b"a" * 100)[:-50])
        await until(lambda: bool(types))
        for _ in range(61):
            edge.pass_time(1.0)
        reply = await client.reply()
        assert (reply.status, reply.error["code"]) == (408, "request_timeout")
        assert await client.rest() == b""
    assert types[-1] == "http.disconnect"


async def test_a_body_that_trickles_gets_408_by_its_rate(start_edge: StartEdge, clock: ManualClock) -> None:
    edge = await start_edge(clock=clock, body__timeout_s=60.0, body__min_bytes_per_s=500, body__grace_s=5.0)
    async with edge.connect() as client:
        await client.send(post(b"a" * 100_000)[:-99_999])
        await until(lambda: edge.app.num_started == 1)
        for _ in range(6):
            edge.pass_time(1.0)
            await client.send(b"a")
            await asyncio.sleep(0.005)
        assert (await client.reply()).status == 408


async def test_a_client_that_waits_for_continue_is_not_slow(start_edge: StartEdge, clock: ManualClock) -> None:
    go = asyncio.Event()

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        await receive()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    edge = await start_edge(handler, clock=clock, body__timeout_s=5.0)
    async with edge.connect() as client:
        await client.send(post(b"hello", b"Expect: 100-continue")[:-5])
        await until(lambda: edge.app.num_started == 1)
        for _ in range(10):
            edge.pass_time(1.0)
        go.set()
        assert (await client.reply()).status == 100
        await client.send(b"hello")
        assert b"204" in await client.reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize("via", ["send", "channel"])
async def test_a_reader_that_stalls_is_cut_off_and_its_memory_stays_bounded(
    start_edge: StartEdge, clock: ManualClock, via: str
) -> None:
    written = 0
    is_over = asyncio.Event()

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal written
        channel = edge_channel(scope)
        assert channel is not None
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not channel.is_gone:
            if via == "send":
                await send({"type": "http.response.body", "body": b"x" * 16_384, "more_body": True})
            elif not channel.write(b"x" * 16_384):
                await channel.drain()
            written += 16_384
            await asyncio.sleep(0)
        is_over.set()

    edge = await start_edge(
        handler, clock=clock, connections__write_stall_timeout_s=30.0, connections__write_high_water_bytes=65_536
    )
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        host, port = edge.address().rsplit(":", 1)
        await asyncio.get_running_loop().sock_connect(slow, (host, int(port)))
        await asyncio.get_running_loop().sock_sendall(slow, get())
        await until(lambda: written > 0)
        before = -1
        while before != written:  # until backpressure holds the application
            before = written
            await asyncio.sleep(0.05)
        assert written < 8_000_000
        for _ in range(8):
            edge.pass_time(7.5)
        await asyncio.wait_for(is_over.wait(), 5.0)
        await until(lambda: edge.server.num_connections["public"] == 0)


async def test_a_slow_reader_that_still_reads_is_left_alone(start_edge: StartEdge, clock: ManualClock) -> None:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(400):
            await send({"type": "http.response.body", "body": b"x" * 16_384, "more_body": True})
        await send({"type": "http.response.body"})

    edge = await start_edge(handler, clock=clock, connections__write_stall_timeout_s=30.0)
    async with edge.connect(limit=4096) as client:
        await client.send(get())
        received = 0
        while received < 400 * 16_384:
            received += len(await client.reader.read(500_000))
            edge.pass_time(5.0)
        assert received >= 400 * 16_384


async def test_a_stalled_reader_does_not_hold_up_the_others(start_edge: StartEdge) -> None:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        size = 20_000_000 if scope["path"] == "/big" else 10
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * size})

    edge = await start_edge(handler)
    async with edge.connect(limit=1024) as stalled:
        await stalled.send(get("/big"))
        await until(lambda: edge.app.num_started == 1)
        assert await edge.is_serving()

"""Connections: how many, from where, with which socket options, and what a half-closed one means."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import warnings
import weakref
from contextlib import AsyncExitStack

import pytest

from gateway.http.asgi import Receive, Scope, Send, edge_channel, respond
from gateway.http.limits import EdgeLimits
from gateway.http.protocol import EdgeProtocol
from tests.gateway.http.conftest import ManualClock, StartEdge, edge_limits, get, until


async def test_a_flood_of_connections_is_refused_cheaply_while_the_admin_listener_answers(
    start_edge: StartEdge, clock: ManualClock
) -> None:
    edge = await start_edge(
        clock=clock, listeners={"public": edge_limits(connections__max_total=5), "admin": EdgeLimits()}
    )
    async with AsyncExitStack() as held:
        for _ in range(4):
            await held.enter_async_context(edge.connect())
        async with edge.connect():
            await until(lambda: edge.server.num_connections["public"] == 5)
            for _ in range(50):
                async with edge.connect() as client:
                    reply = await client.reply()
                    assert (reply.status, reply.error["code"]) == (503, "server_is_overloaded")
                    assert reply.headers["x-penstock-shed-reason"] == "overload"
                    assert reply.headers["retry-after"] == "1"
                    assert reply.error["degraded"]["reason"] == "overload"
                    assert await client.rest() == b""
            assert await edge.is_serving("admin")
        await until(lambda: edge.server.num_connections["public"] == 4)
        assert await edge.is_serving()


async def test_a_full_listener_gives_up_the_connection_that_was_idle_longest(
    start_edge: StartEdge, clock: ManualClock
) -> None:
    release = asyncio.Event()

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await release.wait()
        await respond(send, 200, [], b"ok")

    edge = await start_edge(handler, clock=clock, connections__max_total=3)
    async with edge.connect() as busy, edge.connect() as longest, edge.connect() as idle:
        await longest.call(get())
        clock.advance(0.5)
        await idle.call(get())
        await busy.send(get("/slow"))
        await until(lambda: edge.app.num_started == 3)
        async with edge.connect() as too_soon:
            assert (await too_soon.reply()).status == 503
        clock.advance(0.6)
        async with edge.connect() as fresh:
            assert (await fresh.call(get())).status == 200
            assert await longest.rest() == b""
            assert (await idle.call(get())).status == 200
            assert edge.server.num_connections["public"] == 3
        release.set()
        assert (await busy.reply()).status == 200


async def test_one_ip_may_hold_only_its_share_of_connections(start_edge: StartEdge) -> None:
    edge = await start_edge(connections__max_per_ip=2)
    async with edge.connect() as first, edge.connect() as second:
        assert (await first.call(get())).status == 200
        assert (await second.call(get())).status == 200
        async with edge.connect() as third:
            assert (await third.reply()).status == 503
    await until(lambda: edge.server.num_connections["public"] == 0)
    assert await edge.is_serving()


async def test_accepted_connections_notice_a_peer_that_vanished(start_edge: StartEdge) -> None:
    options: dict[str, int] = {}

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        accepted = edge_channel(scope).transport.get_extra_info("socket")  # type: ignore[union-attr]
        options["keepalive"] = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        options["user_timeout"] = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        options["nodelay"] = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    edge = await start_edge(handler, connections__write_stall_timeout_s=12.0)
    assert await edge.is_serving()
    assert options["keepalive"]
    assert options["user_timeout"] == 12_000
    assert options["nodelay"]


async def test_a_client_that_lingers_after_a_refused_body_is_cut_off_too(
    start_edge: StartEdge, clock: ManualClock
) -> None:
    edge = await start_edge(clock=clock, connections__linger_s=2.0)
    async with edge.connect() as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: edge.test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await until(lambda: edge.app.num_started == 1)
        assert (await client.call(b"zz\r\n")).status == 400
        await client.send(b"still talking")
        edge.pass_time(2.3)
        await until(lambda: edge.server.num_connections["public"] == 0)


@pytest.mark.parametrize("way", ["close", "half-close", "reset"])
@pytest.mark.parametrize("moment", ["before the answer", "in the answer"])
async def test_a_client_that_leaves_is_noticed_at_once(start_edge: StartEdge, way: str, moment: str) -> None:
    is_gone = asyncio.Event()
    is_waiting = asyncio.Event()

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        channel = edge_channel(scope)
        assert channel is not None
        channel.on_gone(is_gone.set)
        if moment == "in the answer":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"token", "more_body": True})
        is_waiting.set()
        await is_gone.wait()
        assert channel.is_gone
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.body", "body": b"for nobody"})

    edge = await start_edge(handler)
    async with edge.connect() as client:
        await client.send(get())
        await asyncio.wait_for(is_waiting.wait(), 5.0)
        if way == "half-close":
            client.writer.write_eof()
        elif way == "close":
            client.writer.close()
        else:
            raw = client.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.writer.transport.abort()
        await asyncio.wait_for(is_gone.wait(), 5.0)
    await until(lambda: edge.server.num_connections["public"] == 0)


async def test_a_client_that_leaves_behind_pipelined_bytes_is_noticed(start_edge: StartEdge) -> None:
    is_gone = asyncio.Event()

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        edge_channel(scope).on_gone(is_gone.set)  # type: ignore[union-attr]
        await is_gone.wait()

    edge = await start_edge(handler)
    async with edge.connect() as client:
        await client.send(get("/first"))
        await until(lambda: edge.app.num_started == 1)
        await client.send(get("/second"))
        client.writer.close()
        await asyncio.wait_for(is_gone.wait(), 5.0)
    await until(lambda: edge.server.num_connections["public"] == 0)
    assert edge.app.num_started == 1


async def test_a_half_closed_idle_connection_is_closed(start_edge: StartEdge) -> None:
    edge = await start_edge()
    async with edge.connect() as client:
        await client.call(get())
        client.writer.write_eof()
        assert await client.rest() == b""


async def test_a_client_that_lingers_after_a_refusal_is_cut_off(start_edge: StartEdge, clock: ManualClock) -> None:
    edge = await start_edge(clock=clock, connections__linger_s=2.0)
    async with edge.connect() as client:
        assert (await client.call(b"BAD\r\n\r\n")).status == 400
        assert await client.rest() == b""
        await client.send(b"still talking")
        assert edge.server.num_connections["public"] == 1
        edge.pass_time(2.3)
        await until(lambda: edge.server.num_connections["public"] == 0)


async def test_two_thousand_slow_lorises_are_all_closed_and_a_good_request_is_served_between(
    start_edge: StartEdge, clock: ManualClock
) -> None:
    edge = await start_edge(clock=clock, header__timeout_s=10.0)
    host, port = edge.address().rsplit(":", 1)
    loop = asyncio.get_running_loop()
    lorises = [socket.socket() for _ in range(2000)]
    try:
        for loris in lorises:
            loris.setblocking(False)
            await loop.sock_connect(loris, (host, int(port)))
        for byte in b"GET /":
            for loris in lorises:
                loris.send(bytes([byte]))
            await asyncio.sleep(0)
        await until(lambda: edge.server.num_connections["public"] == 2000)
        assert await edge.is_serving()
        await until(lambda: edge.server.num_connections["public"] == 2000)
        for _ in range(20):  # several ticks: one works off a bounded number
            edge.pass_time(1.0)
        assert len(edge.refusals) == 2000
        assert await edge.is_serving()
    finally:
        for loris in lorises:
            loris.close()


async def test_a_closed_connection_leaves_nothing_for_the_garbage_collector(start_edge: StartEdge) -> None:
    alive: list[weakref.ref[object]] = []

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        channel = edge_channel(scope)
        alive.append(weakref.ref(channel))
        await respond(send, 200, [], b"ok")

    edge = await start_edge(handler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of sockets that earlier tests left
        gc.collect()
    gc.disable()
    try:
        async with edge.connect() as client:
            await client.call(get())
            await client.call(get())
        async with edge.connect() as client:
            await client.call(b"BAD\r\n\r\n")
        await until(lambda: edge.server.num_connections["public"] == 0)
        await asyncio.sleep(0.01)
        assert [each() for each in alive] == [None, None]
        connections = [each for each in gc.get_objects() if type(each) is EdgeProtocol]
        assert connections == []
    finally:
        gc.enable()


@pytest.mark.parametrize("num_turns", [0, 1, 2, 3])
async def test_a_joined_connection_whose_client_leaves_while_it_is_made_is_let_go(
    start_edge: StartEdge, num_turns: int
) -> None:
    edge = await start_edge()
    for _ in range(20):
        joining = asyncio.ensure_future(edge.server.join("public"))
        for _ in range(num_turns):
            await asyncio.sleep(0)
        joining.cancel()
        for own in await asyncio.gather(joining, return_exceptions=True):
            if isinstance(own, socket.socket):
                own.close()  # it was made before it was called off
    await until(lambda: edge.server.num_connections["public"] == 0)
    assert await edge.is_serving()
    await until(lambda: edge.server.num_connections["public"] == 0)

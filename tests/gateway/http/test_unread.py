"""What clients send that nobody reads yet: bounded for a listener as a whole, and forgotten when it is of no use."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from gateway.http.asgi import Receive, Scope, Send, respond
from tests.gateway.http.conftest import StartEdge, get, post, until

ROOM = 20_000


@pytest.mark.parametrize("piece", [b"x: " + b"y" * 4000 + b"\r\n", b"x: y\r\n" * 80])
async def test_unfinished_heads_are_refused_beyond_a_bound_and_whole_ones_served(
    start_edge: StartEdge, piece: bytes
) -> None:
    edge = await start_edge()
    state = edge.server._states[0]
    state.max_unread_bytes = 10 * len(piece)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(edge.connect()) for _ in range(30)]
        for client in clients:
            await client.send(b"GET / HTTP/1.1\r\nHost: edge.test\r\n" + piece)
        await until(lambda: len(edge.refusals) >= 20)
        assert state.unread_bytes <= state.max_unread_bytes + len(piece) + 100
        assert await edge.is_serving()
        last = await clients[-1].reply()
        assert (last.status, last.headers["x-penstock-shed-reason"]) == (503, "overload")
        assert "retry-after" in last.headers
        first = await clients[0].call(b"\r\n")
        assert first.status == 200, "who was let in may finish"
    await until(lambda: state.unread_bytes == 0)


@pytest.mark.parametrize(("num_early", "is_stored"), [(100, True), (50_000, False), (200_000, False)])
async def test_bytes_that_come_too_early_are_dropped_with_their_connection_beyond_a_bound(
    start_edge: StartEdge, num_early: int, is_stored: bool
) -> None:
    go = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        await respond(send, 200, [])

    edge = await start_edge(slow)
    state = edge.server._states[0]
    state.max_unread_bytes = ROOM
    async with edge.connect() as client:
        await client.send(get("/one"))
        await until(lambda: edge.app.num_started == 1)
        early = get("/two", b"x: " + b"y" * num_early)
        await client.send(early)
        if is_stored:
            await until(lambda: state.unread_bytes == len(early))
        else:
            await asyncio.sleep(0.05)  # real sockets: let it come
            assert state.unread_bytes == 0
        go.set()
        assert (await client.reply()).status == 200
        if is_stored:
            assert (await client.reply()).status == 200
        else:
            assert await client.rest() == b""
    await until(lambda: state.unread_bytes == 0)


async def test_a_body_that_nobody_read_is_forgotten_with_the_answer(start_edge: StartEdge) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 401, [])

    edge = await start_edge(refuse)
    async with edge.connect() as client:
        await client.send(post(b"x" * 100_000))
        assert (await client.reply()).status == 401
        (connection,) = edge.server._states[0].open
        await until(lambda: connection.exchange is not None and not connection.exchange.body)


async def test_a_large_answer_is_not_copied_behind_its_head(start_edge: StartEdge) -> None:
    body = b"z" * 1_000_000

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, [], body)

    edge = await start_edge(large)
    async with edge.connect() as client:
        reply = await client.call(get("/"))
        assert (reply.status, reply.body) == (200, body)
        assert (await client.call(get("/"))).body == body

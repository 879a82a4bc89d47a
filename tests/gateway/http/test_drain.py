"""Stopping: nothing new, what is under way finishes, what does not is given before it is cut."""

from __future__ import annotations

import asyncio

import pytest

from gateway.http.asgi import Receive, Scope, Send, edge_channel
from tests.gateway.http.conftest import StartEdge, get, until


async def test_idle_connections_close_at_once_and_new_ones_are_not_accepted(start_edge: StartEdge) -> None:
    edge = await start_edge()
    async with edge.connect() as client:
        await client.call(get())
        report = await edge.server.drain(5.0)
        assert await client.rest() == b""
    assert (report.num_connections, report.num_cancelled) == (1, 0)
    with pytest.raises(ConnectionRefusedError):
        await edge.is_serving()


async def test_requests_under_way_finish_with_connection_close(start_edge: StartEdge) -> None:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await scope["state"]["draining"].wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"finished"})

    edge = await start_edge(handler)
    async with edge.connect() as client:
        await client.send(get())
        await until(lambda: edge.app.num_started == 1)
        report = await edge.server.drain(5.0)
        reply = await client.reply()
        assert (reply.body, reply.headers["connection"]) == (b"finished", "close")
        assert await client.rest() == b""
    assert report.num_cancelled == 0


async def test_a_request_half_read_when_the_drain_begins_is_still_answered(start_edge: StartEdge) -> None:
    edge = await start_edge()
    async with edge.connect() as client:
        await client.send(get()[:10])
        await asyncio.sleep(0.02)
        draining = asyncio.ensure_future(edge.server.drain(5.0))
        await asyncio.sleep(0.02)
        reply = await client.call(get()[10:])
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        await draining


async def test_what_does_not_finish_is_cancelled_and_may_flush(start_edge: StartEdge) -> None:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        channel = edge_channel(scope)
        assert channel is not None
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data: token\n\n", "more_body": True})
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert channel.is_stopping
            await send({"type": "http.response.body", "body": b'data: {"error": {}}\n\n', "more_body": True})
            raise

    edge = await start_edge(handler)
    async with edge.connect() as client:
        await client.send(get())
        await until(lambda: edge.app.num_started == 1)
        report = await edge.server.drain(0.05)
        received = await client.rest()
    assert b'data: {"error": {}}' in received
    assert not received.endswith(b"0\r\n\r\n")
    assert report.num_cancelled == 1


async def test_an_application_that_ignores_its_cancellation_is_cut_after_the_grace(start_edge: StartEdge) -> None:
    is_gone = asyncio.Event()

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        edge_channel(scope).on_gone(is_gone.set)  # type: ignore[union-attr]
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await is_gone.wait()

    edge = await start_edge(handler)
    async with edge.connect() as client:
        await client.send(get())
        await until(lambda: edge.app.num_started == 1)
        async with asyncio.timeout(2.0):
            await edge.server.drain(0.02, grace_s=0.05)
        assert await client.rest() == b""


async def test_close_leaves_no_task_behind(start_edge: StartEdge) -> None:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    edge = await start_edge(handler)
    async with edge.connect() as client:
        await client.send(get())
        await until(lambda: edge.app.num_started == 1)
        await edge.server.close()
        assert await client.rest() == b""
    assert len(asyncio.all_tasks()) == 1


async def test_a_server_that_cannot_bind_everything_leaves_nothing_open(start_edge: StartEdge) -> None:
    edge = await start_edge()
    with pytest.raises(OSError, match="in use"):
        await start_edge(address=edge.address())

"""Leaving: everybody is served during the notice, clients move on by themselves, sockets of the parent stay open."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.http.conftest import StartEdge, get


async def test_during_the_notice_requests_are_served_and_connections_closed_behind_them(start_edge: StartEdge) -> None:
    edge = await start_edge()
    async with edge.connect() as idle, edge.connect() as busy:
        await idle.call(get())
        leaving = asyncio.ensure_future(edge.server.leave(0.15))
        await asyncio.sleep(0.02)
        reply = await busy.call(get())
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await edge.is_serving()  # also who comes only now
        reply = await idle.call(get())
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        await leaving
        assert not edge.server.draining.is_set()
    with pytest.raises(ConnectionRefusedError):
        await edge.is_serving()


async def test_a_connection_accepted_at_the_last_moment_may_still_call(start_edge: StartEdge) -> None:
    edge = await start_edge()
    async with edge.connect() as late:
        leaving = asyncio.ensure_future(edge.server.leave(0.01))
        await asyncio.sleep(0.1)
        assert not leaving.done()  # its request is expected
        assert (await late.call(get())).status == 200
        await asyncio.wait_for(leaving, 1)

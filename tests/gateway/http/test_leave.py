"""Leaving: everybody is served during the notice, clients move on by themselves, sockets of the parent stay open."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gateway.http.address import bind, describe, inherited_addresses
from gateway.http.limits import ConnectionLimits, EdgeLimits
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


async def test_a_socket_of_the_parent_is_served_and_outlives_the_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as parents:
        address = f"fd:{parents.fileno()}"
        (listening,) = await bind(
            address, reuse_port=False, limits=EdgeLimits(connections=ConnectionLimits(write_stall_timeout_s=3.0))
        )
        assert describe(listening) == inherited_addresses(address)[0] == describe(parents)
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 3000
        listening.close()
        socket.create_connection(parents.getsockname(), 1).close()  # its queue still takes connections


def test_a_number_that_is_no_socket_is_an_error() -> None:
    with open("/dev/null") as file, pytest.raises(OSError, match="socket"):
        inherited_addresses(f"fd:{file.fileno()}")

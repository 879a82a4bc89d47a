"""Whoever waits may be cancelled at any await; nothing may be left behind, and the upstream must notice."""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway.app.connections.upstream_clients import open_upstream
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.connection import Connection
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest
from gateway.upstreams.http1.response import UpstreamResponse
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from tests.gateway.upstreams.conftest import Serve
from tests.gateway.upstreams.http1.test_connection import full_backlog
from tests.gateway.upstreams.scripted import (
    CHUNKED_HEAD,
    LAST_CHUNK,
    NO_TIMEOUTS,
    POST,
    Peer,
    chunk,
    plain,
    sending_then_waiting,
)


def assert_nothing_left(client: UpstreamClient) -> None:
    client.check_integrity()
    snapshot = client.snapshot()
    assert (snapshot.num_busy, snapshot.num_connecting) == (0, 0)


async def exchange(client: UpstreamClient, how: str, timeouts: ExchangeTimeouts = NO_TIMEOUTS) -> None:
    async with await client.send(POST, timeouts) as response:
        if how == "read":
            await response.read(1_000_000)
        elif how == "wait_body":
            await response.wait_body()
            await response.relay(lambda piece: None)
        elif how == "chunks":
            async for _ in response.chunks():
                pass
        else:
            await response.relay(lambda piece: None)


@pytest.mark.parametrize("how", ["read", "chunks", "relay", "wait_body"])
async def test_cancelled_at_every_step_of_an_exchange(serve: Serve, how: str) -> None:
    upstream, client = await serve(sending_then_waiting(b"HTTP/1.1 ", CHUNKED_HEAD[9:], chunk(b"a"), LAST_CHUNK))
    for num_steps in range(60):
        task = asyncio.ensure_future(exchange(client, how))
        for _ in range(num_steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert_nothing_left(client)
    await client.aclose()
    await upstream.until_closed()


@pytest.mark.parametrize("body", [b"stray", b""])
async def test_a_whole_answer_that_comes_as_its_client_leaves_ends_its_connection(serve: Serve, body: bytes) -> None:
    """It may be a late answer to an earlier request; the answer to this one would then reach the next."""
    _, client = await serve(sending_then_waiting())
    sent: list[UpstreamResponse] = []
    task = asyncio.ensure_future(client.send(POST, NO_TIMEOUTS, sent.append))
    while not sent:
        await asyncio.sleep(0)
    connection = sent[0]._source
    assert isinstance(connection, Connection)
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    assert client.snapshot().num_idle == 1, "the answer is whole"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert client.snapshot().num_idle == 0
    assert_nothing_left(client)


@pytest.mark.parametrize(("status", "num_idle"), [(b"200 OK", 0), (b"429 Busy", 1)])
async def test_a_whole_answer_that_nobody_reads_ends_its_connection(serve: Serve, status: bytes, num_idle: int) -> None:
    _, client = await serve(sending_then_waiting(b"HTTP/1.1 %b\r\ncontent-length: 2\r\n\r\n{}" % status))
    response = await client.send(POST, NO_TIMEOUTS)
    while not response.is_complete:
        await asyncio.sleep(0)
    response.close()
    assert client.snapshot().num_idle == num_idle


async def test_cancelled_while_connecting() -> None:
    with full_backlog() as port:
        client = open_upstream(Target.parse(f"http://127.0.0.1:{port}"), limits=PoolLimits())
        task = asyncio.ensure_future(client.send(POST, NO_TIMEOUTS))
        await asyncio.sleep(0.01)
        assert client.snapshot().num_connecting == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_nothing_left(client)
        await client.aclose()


async def test_cancelled_while_the_request_is_being_written(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.gone()

    upstream, client = await serve(script)
    request = UpstreamRequest(b"POST", b"/x", [], b"x" * 20_000_000)
    task = asyncio.ensure_future(client.send(request, NO_TIMEOUTS))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert_nothing_left(client)
    await upstream.until_closed()


@pytest.mark.parametrize("beginning", [b"", CHUNKED_HEAD, CHUNKED_HEAD + chunk(b"a")])
async def test_the_upstream_notices_a_cancellation(serve: Serve, beginning: bytes) -> None:
    upstream, client = await serve(sending_then_waiting(beginning))
    task = asyncio.ensure_future(exchange(client, "relay"))
    while not upstream.requests:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert_nothing_left(client)
    await upstream.until_closed()


async def test_a_cancellation_that_comes_with_the_response_does_not_hurt_the_next_request(serve: Serve) -> None:
    """The response is whole, its connection already carries the next request, and only then the waiter runs."""
    may_answer = asyncio.Event()

    async def script(peer: Peer) -> None:
        while await peer.request():
            await may_answer.wait()
            await peer.send(plain(b"%d" % len(peer.upstream.requests)))

    upstream, client = await serve(script)
    first = asyncio.ensure_future(client.send(POST, NO_TIMEOUTS))
    while not upstream.requests:
        await asyncio.sleep(0)
    may_answer.set()
    while client.snapshot().num_busy:
        await asyncio.sleep(0)
    second = asyncio.ensure_future(client.send(POST, NO_TIMEOUTS))
    first.cancel()
    response = await second
    assert await response.read(10) in (b"1", b"2")
    assert_nothing_left(client)


async def test_a_storm_of_cancellations_leaks_nothing(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.send(CHUNKED_HEAD + chunk(b"a"))
            await asyncio.sleep(0.002)
            await peer.send(chunk(b"b") + LAST_CHUNK)

    upstream, client = await serve(script, limits=PoolLimits(max_connections=64))
    rng = random.Random(7)

    async def one() -> None:
        try:
            async with asyncio.timeout(rng.uniform(0.0, 0.008)):
                await exchange(client, rng.choice(["read", "chunks", "relay"]))
        except TimeoutError:
            pass

    for _ in range(20):
        await asyncio.gather(*(one() for _ in range(50)))
        assert_nothing_left(client)
    await exchange(client, "read")
    await client.aclose()
    await upstream.until_closed()


async def test_warming_up_may_be_cancelled() -> None:
    with full_backlog() as port:
        client = open_upstream(Target.parse(f"http://127.0.0.1:{port}"), limits=PoolLimits())
        task = asyncio.ensure_future(client.warm(5))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_nothing_left(client)
        await client.aclose()


async def test_an_idle_timeout_of_the_server_leaves_no_timer_behind(serve: Serve) -> None:
    _, client = await serve(sending_then_waiting(CHUNKED_HEAD, chunk(b"a")))
    task = asyncio.ensure_future(exchange(client, "read", ExchangeTimeouts(first_byte_s=0.02, inter_chunk_s=0.02)))
    await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0.03)
    assert_nothing_left(client)

"""Connections between requests: reuse, resending, expiry, limits, warming up and closing down."""

from __future__ import annotations

import asyncio
import gc

import pytest

from gateway.app.connections.upstream_clients import open_upstream
from gateway.upstreams.http1.errors import ClosedEarly, ConnectError, ExchangePhase, PoolFull, ResponseClosed
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from tests.gateway.upstreams.conftest import FakeClock, Serve
from tests.gateway.upstreams.scripted import (
    CHUNKED_HEAD,
    LAST_CHUNK,
    NO_TIMEOUTS,
    POST,
    Peer,
    answering,
    chunk,
    plain,
    sending_then_closing,
    sending_then_waiting,
)


async def test_uses_one_connection_for_request_after_request(serve: Serve) -> None:
    upstream, client = await serve(answering(plain(b"a")))
    seen = []
    for _ in range(5):
        async with await client.send(POST, NO_TIMEOUTS) as response:
            await response.read(10)
            seen.append((response.reused, response.connect_s > 0))
    assert seen == [(False, True)] + [(True, False)] * 4
    assert upstream.num_connections == 1


async def test_reuses_the_connection_that_was_used_last(serve: Serve) -> None:
    may_end = [asyncio.Event() for _ in range(4)]

    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.send(CHUNKED_HEAD + chunk(b"%d" % peer.number))
            await may_end[peer.number].wait()
            await peer.send(LAST_CHUNK)

    upstream, client = await serve(script)
    responses = [await client.send(POST, NO_TIMEOUTS) for _ in range(3)]
    for number in (3, 1, 2):
        may_end[number].set()
        assert await responses[number - 1].read(10) == b"%d" % number
    for _ in range(3):
        response = await client.send(POST, NO_TIMEOUTS)
        assert await response.read(10) == b"2"
    assert upstream.num_connections == 3


async def test_a_response_may_be_read_after_its_connection_is_used_again(serve: Serve) -> None:
    _, client = await serve(answering(plain(b"first"), plain(b"second")))
    first = await client.send(POST, NO_TIMEOUTS)
    second = await client.send(POST, NO_TIMEOUTS)
    assert second.reused
    assert (await first.read(10), await second.read(10)) == (b"first", b"second")


async def test_connection_close_is_honoured(serve: Serve) -> None:
    upstream, client = await serve(answering(plain(b"a", b"connection: close")))
    for _ in range(2):
        async with await client.send(POST, NO_TIMEOUTS) as response:
            assert await response.read(10) == b"a"
        assert client.snapshot().num_idle == 0
    assert upstream.num_connections == 2


async def test_resends_once_when_a_reused_connection_closes_under_it(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(plain(b"%d" % peer.number))
        await peer.request()  # the keep-alive ends in the moment in which we send

    upstream, client = await serve(script)
    for expected in (b"1", b"2"):
        async with await client.send(POST, NO_TIMEOUTS) as response:
            assert await response.read(10) == expected
    assert (upstream.num_connections, len(upstream.requests)) == (2, 3)


async def test_does_not_resend_on_a_fresh_connection(serve: Serve) -> None:
    upstream, client = await serve(sending_then_closing())
    with pytest.raises(ClosedEarly) as caught:
        await client.send(POST, NO_TIMEOUTS)
    assert (caught.value.phase, caught.value.response_started) == (ExchangePhase.HEAD, False)
    assert len(upstream.requests) == 1


async def test_does_not_resend_twice(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number == 1:
            await peer.send(plain(b"a"))
            await peer.request()

    upstream, client = await serve(script)
    await (await client.send(POST, NO_TIMEOUTS)).read(10)
    with pytest.raises(ClosedEarly):
        await client.send(POST, NO_TIMEOUTS)
    assert len(upstream.requests) == 3


async def test_does_not_resend_after_the_first_byte(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(plain(b"a"))
        await peer.request()
        await peer.send(b"H")

    upstream, client = await serve(script)
    await (await client.send(POST, NO_TIMEOUTS)).read(10)
    with pytest.raises(ClosedEarly) as caught:
        await client.send(POST, NO_TIMEOUTS)
    assert caught.value.response_started
    assert upstream.num_connections == 1


async def test_a_connection_closed_while_idle_is_forgotten(serve: Serve) -> None:
    upstream, client = await serve(sending_then_closing(plain(b"a")))
    await (await client.send(POST, NO_TIMEOUTS)).read(10)
    await upstream.until_closed()
    async with asyncio.timeout(5):
        while client.snapshot().num_idle:
            await asyncio.sleep(0)


async def test_bytes_on_an_idle_connection_close_it(serve: Serve) -> None:
    may_talk = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(plain(b"a"))
        await may_talk.wait()
        await peer.send(plain(b"poison"))
        await peer.gone()

    _, client = await serve(script)
    await (await client.send(POST, NO_TIMEOUTS)).read(10)
    assert client.snapshot().num_idle == 1
    may_talk.set()
    async with asyncio.timeout(5):
        while client.snapshot().num_idle:
            await asyncio.sleep(0)


async def test_refuses_above_the_limit_instead_of_queueing(serve: Serve) -> None:
    _, client = await serve(sending_then_waiting(CHUNKED_HEAD), limits=PoolLimits(max_connections=2))
    held = [await client.send(POST, NO_TIMEOUTS) for _ in range(2)]
    with pytest.raises(PoolFull) as caught:
        await client.send(POST, NO_TIMEOUTS)
    assert caught.value.phase is ExchangePhase.CONNECT
    for response in held:
        response.close()
    (await client.send(POST, NO_TIMEOUTS)).close()


async def test_idle_connections_expire_by_the_clock(serve: Serve, clock: FakeClock) -> None:
    _, client = await serve(answering(plain(b"a")), clock=clock, limits=PoolLimits(idle_s=3.0))
    await (await client.send(POST, NO_TIMEOUTS)).read(10)
    clock.advance(2.9)
    response = await client.send(POST, NO_TIMEOUTS)
    await response.read(10)
    assert response.reused
    clock.advance(3.0)
    response = await client.send(POST, NO_TIMEOUTS)
    await response.read(10)
    assert not response.reused
    assert client.snapshot().num_idle == 1


async def test_connections_do_not_outlive_their_lifetime(serve: Serve, clock: FakeClock) -> None:
    _, client = await serve(answering(plain(b"a")), clock=clock, limits=PoolLimits(idle_s=100.0, lifetime_s=10.0))
    await (await client.send(POST, NO_TIMEOUTS)).read(10)
    clock.advance(10.0)
    response = await client.send(POST, NO_TIMEOUTS)
    assert not response.reused
    clock.advance(10.0)
    await response.read(10)
    assert client.snapshot().num_idle == 1  # it was already back when the clock moved
    assert not (await client.send(POST, NO_TIMEOUTS)).reused


async def test_opens_connections_ahead_of_need(serve: Serve) -> None:
    upstream, client = await serve(answering(plain(b"a")), limits=PoolLimits(max_connections=4))
    await client.warm(3)
    assert client.snapshot().num_idle == 3
    await client.warm(3)
    await client.warm(100)
    assert (client.snapshot().num_idle, upstream.num_connections) == (4, 4)
    response = await client.send(POST, NO_TIMEOUTS)
    assert response.reused
    response.close()


async def test_while_many_are_busy_the_next_connection_is_made_before_it_is_needed(serve: Serve) -> None:
    upstream, client = await serve(sending_then_waiting(CHUNKED_HEAD), limits=PoolLimits(max_connections=64))
    responses = [await client.send(POST, NO_TIMEOUTS) for _ in range(9)]
    assert upstream.num_connections >= 9
    async with asyncio.timeout(30):
        while not client.snapshot().num_idle:
            await asyncio.sleep(0)

    response = await client.send(POST, NO_TIMEOUTS)

    assert response.reused
    for one in (*responses, response):
        one.close()


async def test_the_stock_is_refilled_before_it_is_used_up(serve: Serve) -> None:
    _, client = await serve(sending_then_waiting(CHUNKED_HEAD), limits=PoolLimits(max_connections=128))
    responses = [await client.send(POST, NO_TIMEOUTS) for _ in range(16)]
    async with asyncio.timeout(30):
        for _ in range(3):
            while client.snapshot().num_idle < 3:
                await asyncio.sleep(0)
            for _ in range(10):  # what made them has ended
                await asyncio.sleep(0)
            responses.append(await client.send(POST, NO_TIMEOUTS))
            assert responses[-1].reused
    client.check_integrity()
    for one in responses:
        one.close()


async def test_no_connection_is_made_ahead_where_places_are_scarce(serve: Serve) -> None:
    upstream, client = await serve(sending_then_waiting(CHUNKED_HEAD), limits=PoolLimits(max_connections=10))
    responses = [await client.send(POST, NO_TIMEOUTS) for _ in range(10)]
    with pytest.raises(PoolFull):
        await client.send(POST, NO_TIMEOUTS)
    assert upstream.num_connections == 10
    for one in responses:
        one.close()


async def test_warming_a_dead_upstream_fails_and_leaks_nothing() -> None:
    client = open_upstream(Target.parse("unix:/nowhere.sock"), limits=PoolLimits())
    with pytest.raises(ConnectError):
        await client.warm(5)
    client.check_integrity()
    assert client.snapshot().num_connecting == 0
    await client.aclose()


async def test_closing_the_client_fails_what_is_in_flight(serve: Serve) -> None:
    upstream, client = await serve(sending_then_waiting(CHUNKED_HEAD))
    response = await client.send(POST, NO_TIMEOUTS)
    reading = asyncio.ensure_future(response.read(100))
    await asyncio.sleep(0)
    await client.aclose()
    with pytest.raises(ResponseClosed):
        await reading
    with pytest.raises(ResponseClosed):
        await client.send(POST, NO_TIMEOUTS)
    await client.aclose()
    await upstream.until_closed()


async def test_the_counts_show_in_its_representation(serve: Serve) -> None:
    _, client = await serve(answering(plain(b"a")))
    await (await client.send(POST, NO_TIMEOUTS)).read(10)
    assert "0 busy, 1 idle, 0 connecting, 0 closing, max 512" in repr(client)


async def test_a_thousand_requests_leave_no_garbage_behind(serve: Serve) -> None:
    _, client = await serve(answering(plain(b"a")))

    async def worker(count: int) -> None:
        for _ in range(count):
            async with await client.send(POST, NO_TIMEOUTS) as response:
                await response.read(10)

    await worker(10)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        await worker(1000)
        assert len(gc.get_objects()) - before < 200
    finally:
        gc.enable()


async def test_three_hundred_answers_that_nobody_waits_for_leave_no_garbage_behind(serve: Serve) -> None:
    async def silent(peer: Peer) -> None:
        while await peer.request():
            pass

    _, client = await serve(silent)
    sent = asyncio.Event()

    async def leave_early() -> None:
        sending = asyncio.create_task(client.send(POST, NO_TIMEOUTS, lambda _: sent.set()))
        await sent.wait()
        sent.clear()
        sending.cancel()
        await asyncio.wait([sending])

    await leave_early()
    await asyncio.sleep(0.01)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(300):
            await leave_early()
        await asyncio.sleep(0.01)
        gc.collect()
        ours = [thing for thing in gc.garbage if type(thing).__module__.startswith(("gateway.", "httptools."))]
        assert len(ours) < 30, f"{len(ours)} parsers, readers and the like in cycles"
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()

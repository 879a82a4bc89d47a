from __future__ import annotations

import asyncio
import gc

import pytest

from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.errors import BodyTooLarge, ClosedEarly, ConnectError, PoolFull, ResponseClosed, UpstreamError
from gateway.upstreams.pool import PoolLimits
from gateway.upstreams.request import UpstreamRequest
from gateway.upstreams.target import Target
from tests.gateway.upstreams.conftest import FakeClock, Serve
from tests.gateway.upstreams.scripted import (
    CHUNKED_HEAD,
    LAST_CHUNK,
    NO_TIMEOUTS,
    POST,
    Peer,
    ScriptedUpstream,
    answering,
    chunk,
    plain,
    sending_then_closing,
    sending_then_waiting,
)


async def test_sends_a_request_and_reads_its_response(serve: Serve) -> None:
    upstream, client = await serve(answering(plain(b"hello", b"X-Engine: a")))
    async with await client.send(POST, NO_TIMEOUTS) as response:
        assert (response.status, dict(response.headers)[b"x-engine"]) == (200, b"a")
        assert await response.read(100) == b"hello"
    assert upstream.requests[0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n")
    assert upstream.requests[0].endswith(b'\r\n\r\n{"a":1}')


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


async def test_tells_when_the_first_byte_came_on_its_clock(serve: Serve, clock: FakeClock) -> None:
    _, client = await serve(answering(plain(b"a")), clock=clock)
    async with await client.send(POST, NO_TIMEOUTS) as response:
        assert response.first_byte_at == 1000.0


async def test_gives_pieces_as_they_come(serve: Serve) -> None:
    _, client = await serve(sending_then_waiting(CHUNKED_HEAD, chunk(b"a"), chunk(b"b") + chunk(b"c"), LAST_CHUNK))
    response = await client.send(POST, NO_TIMEOUTS)
    assert [piece async for piece in response.chunks()] == [b"a", b"bc"]
    assert response.is_complete


async def test_relays_pieces_straight_into_a_sink(serve: Serve) -> None:
    _, client = await serve(sending_then_waiting(CHUNKED_HEAD + chunk(b"a"), chunk(b"b"), chunk(b"c"), LAST_CHUNK))
    response = await client.send(POST, NO_TIMEOUTS)
    pieces: list[bytes] = []
    await response.relay(pieces.append)
    assert pieces == [b"a", b"b", b"c"]
    assert client.snapshot().num_idle == 1


async def test_a_failing_sink_closes_the_connection_and_its_error_arrives(serve: Serve) -> None:
    upstream, client = await serve(sending_then_waiting(CHUNKED_HEAD, chunk(b"a"), chunk(b"b")))
    response = await client.send(POST, NO_TIMEOUTS)

    def sink(piece: bytes) -> None:
        raise RuntimeError("client gone")

    with pytest.raises(RuntimeError, match="client gone"):
        await response.relay(sink)
    await upstream.until_closed()
    assert client.snapshot().num_busy == 0


async def test_leaving_before_the_end_closes_the_connection_at_once(serve: Serve) -> None:
    upstream, client = await serve(sending_then_waiting(CHUNKED_HEAD, chunk(b"a")))
    async with await client.send(POST, NO_TIMEOUTS) as response:
        async for _ in response.chunks():
            break
    await upstream.until_closed()
    assert client.snapshot().num_busy == client.snapshot().num_idle == 0


async def test_closing_twice_or_after_the_end_does_nothing(serve: Serve) -> None:
    _, client = await serve(answering(plain(b"a")))
    response = await client.send(POST, NO_TIMEOUTS)
    await response.read(10)
    response.close()
    response.close()
    assert client.snapshot().num_idle == 1


async def test_a_closed_response_says_so_when_read(serve: Serve) -> None:
    _, client = await serve(sending_then_waiting(CHUNKED_HEAD, chunk(b"a")))
    response = await client.send(POST, NO_TIMEOUTS)
    response.close()
    with pytest.raises(ResponseClosed):
        await response.read(10)


@pytest.mark.parametrize(
    "wire", [plain(b"x" * 100), CHUNKED_HEAD + chunk(b"x" * 100) + LAST_CHUNK, CHUNKED_HEAD + chunk(b"x" * 100)]
)
async def test_reads_no_more_than_allowed(serve: Serve, wire: bytes) -> None:
    _, client = await serve(sending_then_waiting(wire))
    response = await client.send(POST, NO_TIMEOUTS)
    with pytest.raises(BodyTooLarge):
        await response.read(99)


async def test_reads_a_body_larger_than_its_buffer(serve: Serve) -> None:
    body = b"x" * 1_000_000
    _, client = await serve(answering(plain(body)))
    response = await client.send(POST, NO_TIMEOUTS)
    assert await response.read(2_000_000) == body


async def test_sends_a_body_larger_than_the_socket_buffers(serve: Serve) -> None:
    upstream, client = await serve(answering(plain(b"ok")))
    body = bytes(range(256)) * 20_000
    response = await client.send(UpstreamRequest(b"POST", b"/x", [], body), NO_TIMEOUTS)
    assert await response.read(10) == b"ok"
    assert upstream.requests[0].endswith(body)


async def test_an_answer_before_the_request_was_taken_costs_the_connection(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(plain(b"too large", status=b"413 Content Too Large"))
        await asyncio.sleep(10)

    _, client = await serve(script)
    response = await client.send(UpstreamRequest(b"POST", b"/x", [], b"x" * 20_000_000), NO_TIMEOUTS)
    assert (response.status, await response.read(100)) == (413, b"too large")
    assert client.snapshot().num_idle == 0


async def test_connection_close_is_honoured(serve: Serve) -> None:
    upstream, client = await serve(answering(plain(b"a", b"connection: close")))
    for _ in range(2):
        async with await client.send(POST, NO_TIMEOUTS) as response:
            assert await response.read(10) == b"a"
        assert client.snapshot().num_idle == 0
    assert upstream.num_connections == 2


async def test_a_body_may_end_with_the_connection(serve: Serve) -> None:
    _, client = await serve(sending_then_closing(b"HTTP/1.1 200 OK\r\n\r\n", b"abc", b"def"))
    async with await client.send(POST, NO_TIMEOUTS) as response:
        assert await response.read(100) == b"abcdef"


async def test_a_head_request_has_no_body(serve: Serve) -> None:
    _, client = await serve(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", plain(b"hello")))
    async with await client.send(UpstreamRequest(b"HEAD", b"/v1/models"), NO_TIMEOUTS) as response:
        assert await response.read(10) == b""
    async with await client.send(UpstreamRequest(b"GET", b"/v1/models"), NO_TIMEOUTS) as response:
        assert (response.reused, await response.read(10)) == (True, b"hello")


async def test_informational_responses_are_skipped(serve: Serve) -> None:
    _, client = await serve(sending_then_waiting(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", plain(b"a")))
    async with await client.send(POST, NO_TIMEOUTS) as response:
        assert (response.status, await response.read(10)) == (200, b"a")


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
    assert (caught.value.response_started, caught.value.is_safe_to_resend, caught.value.request_sent) == (
        False,
        True,
        True,
    )
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
    assert not caught.value.request_sent
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


async def test_warming_a_dead_upstream_fails_and_leaks_nothing() -> None:
    client = UpstreamClient(Target.parse("unix:/nowhere.sock"), limits=PoolLimits())
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


async def test_the_books_show_in_its_representation(serve: Serve) -> None:
    _, client = await serve(answering(plain(b"a")))
    await (await client.send(POST, NO_TIMEOUTS)).read(10)
    assert "0 busy, 1 idle, 0 connecting, 0 closing, max 512" in repr(client)


async def test_speaks_tcp_and_puts_the_base_path_in_front() -> None:
    async with ScriptedUpstream(answering(plain(b"a")), None) as upstream:
        target = Target.parse(f"http://localhost:{upstream.port}/openai")
        client = UpstreamClient(target, limits=PoolLimits())
        await (await client.send(POST, NO_TIMEOUTS)).read(10)
        host = f"host: localhost:{upstream.port}".encode()
        assert upstream.requests[0].startswith(b"POST /openai/v1/chat/completions HTTP/1.1\r\n" + host)
        await client.aclose()


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


def test_every_error_says_where_and_whether_to_resend() -> None:
    error: UpstreamError = ConnectError("refused")
    assert (error.phase.value, error.response_started, error.request_sent, error.is_safe_to_resend) == (
        "connect",
        False,
        False,
        True,
    )

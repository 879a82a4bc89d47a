from __future__ import annotations

import asyncio
import weakref

import pytest

from gateway.app.connections.upstream_clients import open_upstream
from gateway.upstreams.http1.errors import ResponseClosed, UpstreamBodyTooLarge
from gateway.upstreams.http1.request import UpstreamRequest
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
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


async def test_reports_when_the_first_byte_came_on_its_clock(serve: Serve, clock: FakeClock) -> None:
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


async def test_who_took_the_pieces_is_let_go_with_the_last_one(serve: Serve) -> None:
    _, client = await serve(sending_then_waiting(CHUNKED_HEAD + chunk(b"a"), chunk(b"b"), LAST_CHUNK))

    class Taker:
        def __init__(self) -> None:
            self.pieces: list[bytes] = []

        def take(self, piece: bytes) -> None:
            self.pieces.append(piece)

    response = await client.send(POST, NO_TIMEOUTS)
    taker = Taker()
    await response.relay(taker.take)
    assert taker.pieces == [b"a", b"b"]
    is_held = weakref.ref(taker)
    del taker

    assert is_held() is None, "the response still leads to it"


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


async def test_a_closed_response_reports_it_when_read(serve: Serve) -> None:
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
    with pytest.raises(UpstreamBodyTooLarge):
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


async def test_a_body_may_end_with_the_connection(serve: Serve) -> None:
    _, client = await serve(sending_then_closing(b"HTTP/1.1 200 OK\r\n\r\n", b"abc", b"def"))
    async with await client.send(POST, NO_TIMEOUTS) as response:
        assert await response.read(100) == b"abcdef"


async def test_a_head_request_has_no_body(serve: Serve) -> None:
    _, client = await serve(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n", plain(b"hello")))
    async with await client.send(UpstreamRequest(b"HEAD", b"/v1/models"), NO_TIMEOUTS) as response:
        assert await response.read(10) == b""
    async with await client.send(UpstreamRequest(b"GET", b"/v1/models"), NO_TIMEOUTS) as response:
        assert (response.reused, await response.read(10)) == (True, b"hello")


async def test_informational_responses_are_skipped(serve: Serve) -> None:
    _, client = await serve(sending_then_waiting(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", plain(b"a")))
    async with await client.send(POST, NO_TIMEOUTS) as response:
        assert (response.status, await response.read(10)) == (200, b"a")


async def test_speaks_tcp_and_puts_the_base_path_in_front() -> None:
    async with ScriptedUpstream(answering(plain(b"a")), None) as upstream:
        target = Target.parse(f"http://localhost:{upstream.port}/openai")
        client = open_upstream(target, limits=PoolLimits())
        await (await client.send(POST, NO_TIMEOUTS)).read(10)
        host = f"host: localhost:{upstream.port}".encode()
        assert upstream.requests[0].startswith(b"POST /openai/v1/chat/completions HTTP/1.1\r\n" + host)
        await client.aclose()

"""Upstreams that misbehave, each the way real ones do."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gateway.app.connections.upstream_clients import open_upstream
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.errors import (
    ClosedEarly,
    ConnectError,
    ConnectTimeout,
    ExchangePhase,
    FirstByteTimeout,
    HeadTooLarge,
    InterChunkTimeout,
    ProtocolError,
    TotalTimeout,
    UpstreamError,
)
from gateway.upstreams.http1.request import ExchangeTimeouts
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from tests.gateway.upstreams.conftest import Serve
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


async def exchange(client: UpstreamClient, timeouts: ExchangeTimeouts = NO_TIMEOUTS) -> bytes:
    async with await client.send(POST, timeouts) as response:
        return await response.read(1_000_000)


async def failure(client: UpstreamClient, timeouts: ExchangeTimeouts = NO_TIMEOUTS) -> UpstreamError:
    """How an exchange fails; and that it leaves no connection behind."""
    with pytest.raises(UpstreamError) as caught:
        await exchange(client, timeouts)
    client.check_integrity()
    snapshot = client.snapshot()
    assert snapshot.num_busy == snapshot.num_idle == snapshot.num_connecting == 0
    return caught.value


@contextmanager
def full_backlog() -> Iterator[int]:
    """A TCP port that swallows connection attempts: its accept queue is full and nobody accepts."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


async def test_waits_for_a_unix_listener_whose_queue_is_full_for_a_moment(socket_dir: Path) -> None:
    path = socket_dir / "full.sock"
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(0)
        stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
        client = open_upstream(Target.parse(f"unix:{path}"), limits=PoolLimits())
        assert isinstance(await failure(client, ExchangeTimeouts(connect_s=0.02)), ConnectTimeout)
        warming = asyncio.ensure_future(client.warm(1))
        await asyncio.sleep(0.005)
        for _ in range(2):
            stack.enter_context(listener.accept()[0])
            await asyncio.sleep(0.05)
        await warming
        assert client.snapshot().num_idle == 1
        await client.aclose()


async def test_a_refused_connection_is_an_error_before_anything_was_sent() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        client = open_upstream(Target.parse(f"http://127.0.0.1:{unused.getsockname()[1]}"), limits=PoolLimits())
        error = await failure(client)
    assert isinstance(error, ConnectError)
    assert error.phase is ExchangePhase.CONNECT
    await client.aclose()


async def test_a_missing_socket_is_a_connect_error() -> None:
    client = open_upstream(Target.parse("unix:/nowhere/engine.sock"), limits=PoolLimits())
    error = await failure(client)
    assert isinstance(error, ConnectError)
    assert "unix:/nowhere/engine.sock" in str(error)
    await client.aclose()


@pytest.mark.parametrize(
    ("timeouts", "kind"),
    [
        (ExchangeTimeouts(connect_s=0.05), ConnectTimeout),
        (ExchangeTimeouts(connect_s=0.05, total_s=5.0), ConnectTimeout),
        (ExchangeTimeouts(connect_s=5.0, total_s=0.05), TotalTimeout),
    ],
)
async def test_a_black_hole_times_out(timeouts: ExchangeTimeouts, kind: type[UpstreamError]) -> None:
    with full_backlog() as port:
        client = open_upstream(Target.parse(f"http://127.0.0.1:{port}"), limits=PoolLimits())
        error = await failure(client, timeouts)
        assert isinstance(error, kind)
        assert error.phase is ExchangePhase.CONNECT
        await client.aclose()


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\nx: ", CHUNKED_HEAD])
async def test_silence_before_the_first_piece_times_out_and_the_upstream_notices(
    serve: Serve, beginning: bytes
) -> None:
    upstream, client = await serve(sending_then_waiting(beginning))
    error = await failure(client, ExchangeTimeouts(first_byte_s=0.05, inter_chunk_s=0.01))
    assert isinstance(error, FirstByteTimeout)
    assert error.response_started is bool(beginning)
    await upstream.until_closed()


async def test_a_stalled_body_times_out(serve: Serve) -> None:
    upstream, client = await serve(sending_then_waiting(CHUNKED_HEAD + chunk(b"a"), chunk(b"b"), chunk(b"c")))
    response = await client.send(POST, ExchangeTimeouts(first_byte_s=5.0, inter_chunk_s=0.05))
    pieces: list[bytes] = []
    with pytest.raises(InterChunkTimeout):
        await response.relay(pieces.append)
    assert pieces == [b"a", b"b", b"c"]
    await upstream.until_closed()


async def heartbeats(peer: Peer) -> None:
    await peer.request()
    await peer.send(CHUNKED_HEAD + chunk(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'))
    while True:
        await peer.send(chunk(b": ping\n\n"))
        await asyncio.sleep(0.005)


async def test_heartbeats_do_not_keep_a_stalled_body_alive(serve: Serve) -> None:
    _, client = await serve(heartbeats)
    response = await client.send(POST, ExchangeTimeouts(inter_chunk_s=0.05))
    with pytest.raises(InterChunkTimeout):
        await response.relay(lambda piece: None)


async def test_the_caller_may_state_that_heartbeats_count(serve: Serve) -> None:
    _, client = await serve(heartbeats)
    response = await client.send(POST, ExchangeTimeouts(inter_chunk_s=0.05, total_s=0.15))
    with pytest.raises(TotalTimeout):
        await response.relay(lambda piece: None, progress=lambda piece: True)


async def test_heartbeats_are_not_a_first_byte(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        while True:
            await peer.send(chunk(b": ping\n\n"))
            await asyncio.sleep(0.002)

    _, client = await serve(script)
    response = await client.send(POST, ExchangeTimeouts(first_byte_s=0.05, inter_chunk_s=5.0))
    with pytest.raises(FirstByteTimeout):
        await response.wait_body()


async def test_waiting_for_the_body_ends_with_its_first_token(serve: Serve) -> None:
    beginning = CHUNKED_HEAD + chunk(b": ping\n\n")
    _, client = await serve(sending_then_waiting(beginning, chunk(b": ping\n\n"), chunk(b"data: {}\n\n"), LAST_CHUNK))
    async with await client.send(POST, NO_TIMEOUTS) as response:
        await response.wait_body()
        assert await response.read(100) == b": ping\n\n: ping\n\ndata: {}\n\n"


async def test_waiting_for_the_body_ends_when_only_heartbeats_fill_the_buffer(serve: Serve) -> None:
    _, client = await serve(sending_then_waiting(CHUNKED_HEAD + chunk(b": ping\n\n") * 100), max_buffer_bytes=200)
    async with await client.send(POST, NO_TIMEOUTS) as response:
        await response.wait_body()


async def test_waiting_for_the_body_fails_with_it(serve: Serve) -> None:
    _, client = await serve(sending_then_closing(CHUNKED_HEAD))
    response = await client.send(POST, NO_TIMEOUTS)
    with pytest.raises(ClosedEarly):
        await response.wait_body()


async def test_a_loop_that_was_late_itself_does_not_blame_the_upstream(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(plain(b"a"))
        time.sleep(0.08)  # noqa: ASYNC251  # the answer is on its way, and the whole loop stands still

    _, client = await serve(script)
    assert await exchange(client, ExchangeTimeouts(first_byte_s=0.05)) == b"a"


async def test_an_upstream_that_stood_still_with_the_gateway_gets_that_time_again(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        time.sleep(0.5)  # noqa: ASYNC251  # as on a machine that was suspended
        await asyncio.sleep(0.1)
        await peer.send(plain(b"a"))

    _, client = await serve(script)
    assert await exchange(client, ExchangeTimeouts(first_byte_s=0.05)) == b"a"


async def test_a_body_that_never_ends_meets_the_total_limit(serve: Serve) -> None:
    _, client = await serve(heartbeats)
    assert isinstance(await failure(client, ExchangeTimeouts(inter_chunk_s=1.0, total_s=0.05)), TotalTimeout)


async def test_a_deadline_of_one_request_does_not_hit_the_next(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        while await peer.request():
            if len(peer.upstream.requests) > 1:
                await asyncio.sleep(0.35)
            await peer.send(plain(b"a"))

    _, client = await serve(script)
    await exchange(client, ExchangeTimeouts(first_byte_s=0.25, total_s=0.3))
    assert await exchange(client, ExchangeTimeouts(first_byte_s=5.0, total_s=5.0)) == b"a"


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(plain(b"hello world")[:-3], id="content-length too long"),
        pytest.param(CHUNKED_HEAD + chunk(b"abc"), id="no last chunk"),
        pytest.param(CHUNKED_HEAD + b"ff\r\nabc", id="chunk cut short"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx", id="head cut short"),
    ],
)
async def test_an_answer_cut_short_is_an_error_never_an_end(serve: Serve, wire: bytes) -> None:
    _, client = await serve(sending_then_closing(wire))
    error = await failure(client)
    assert isinstance(error, ClosedEarly)
    assert error.response_started


@pytest.mark.parametrize("num_bytes", [0, 1, 20, len(CHUNKED_HEAD), len(CHUNKED_HEAD) + 3, len(CHUNKED_HEAD) + 20])
async def test_a_reset_after_any_number_of_bytes_is_closed_early(num_bytes: int) -> None:
    wire = CHUNKED_HEAD + chunk(b"data: {}\n\n") * 3

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(wire[:num_bytes])
        await asyncio.sleep(0.005)
        peer.reset()

    async with ScriptedUpstream(script, None) as upstream:
        client = open_upstream(Target.parse(f"http://127.0.0.1:{upstream.port}"), limits=PoolLimits())
        error = await failure(client)
        assert isinstance(error, ClosedEarly)
        assert error.response_started is (num_bytes > 0)
        await client.aclose()


async def test_text_before_a_reset_is_passed_on_before_the_error(serve: Serve) -> None:
    _, client = await serve(sending_then_closing(CHUNKED_HEAD, chunk(b"a"), chunk(b"b")))
    response = await client.send(POST, NO_TIMEOUTS)
    pieces: list[bytes] = []
    with pytest.raises(ClosedEarly):
        await response.relay(pieces.append)
    assert b"".join(pieces) == b"ab"


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(plain(b"hello") + b" world", id="content-length too short"),
        pytest.param(plain(b"hello") + plain(b"second"), id="a second response"),
        pytest.param(CHUNKED_HEAD + b"zz\r\n", id="bad chunk size"),
        pytest.param(CHUNKED_HEAD + b"3\r\nabcX\r\n", id="bad chunk end"),
        pytest.param(CHUNKED_HEAD + b"1;" + b"x" * 100_000, id="endless chunk extension"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", id="not HTTP"),
    ],
)
async def test_broken_framing_is_a_protocol_error_and_drops_the_connection(serve: Serve, wire: bytes) -> None:
    upstream, client = await serve(sending_then_waiting(wire))
    assert isinstance(await failure(client), ProtocolError)
    await upstream.until_closed()


async def test_text_before_broken_framing_is_passed_on_before_the_error(serve: Serve) -> None:
    _, client = await serve(sending_then_waiting(CHUNKED_HEAD, chunk(b"a"), chunk(b"b") + b"zz\r\n"))
    response = await client.send(POST, NO_TIMEOUTS)
    pieces: list[bytes] = []
    with pytest.raises(ProtocolError):
        await response.relay(pieces.append)
    assert b"".join(pieces) == b"ab"


@pytest.mark.parametrize("endless", [b"x-a: b\r\n", b"x"])
async def test_endless_headers_are_bounded(serve: Serve, endless: bytes) -> None:
    num_sent = 0

    async def script(peer: Peer) -> None:
        nonlocal num_sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            await peer.send(endless * 1000)
            num_sent += len(endless) * 1000

    _, client = await serve(script)
    assert isinstance(await failure(client), HeadTooLarge)
    assert num_sent < 2_000_000


async def test_one_byte_slices_give_the_same_bytes(serve: Serve) -> None:
    body = 'data: {"delta": "zwölf 🎲"}\r\n\r\ndata: [DONE]\n\n'.encode()
    wire = CHUNKED_HEAD + b"".join(chunk(body[at : at + 1]) for at in range(len(body))) + LAST_CHUNK

    async def script(peer: Peer) -> None:
        await peer.request()
        for at in range(len(wire)):
            await peer.send(wire[at : at + 1])
            await asyncio.sleep(0)
        await peer.gone()

    _, client = await serve(script)
    assert await exchange(client) == body
    assert client.snapshot().num_idle == 1


async def test_a_keep_alive_that_ends_as_we_send_is_invisible(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(plain(b"a"))
        await peer.request()
        peer.reset()

    upstream, client = await serve(script)
    for _ in range(20):
        assert await exchange(client) == b"a"
    assert client.snapshot().num_busy == 0
    assert upstream.num_connections == 20


async def test_a_failed_exchange_does_not_spoil_the_next(serve: Serve) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number == 1:
            await peer.send(b"garbage\r\n\r\n")
        else:
            await answering(plain(b"fine"))(peer)

    _, client = await serve(script)
    await failure(client)
    response = asyncio.ensure_future(exchange(client, ExchangeTimeouts(first_byte_s=0.05)))
    with pytest.raises(FirstByteTimeout):
        await response

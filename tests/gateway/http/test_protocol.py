"""The connection fed with bytes directly: however they are cut, the same requests are seen and answered."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.http.asgi import Receive, Scope, Send, read_body, respond
from gateway.http.limits import EdgeLimits, HeaderLimits
from gateway.http.protocol import EdgeProtocol
from gateway.http.server import uvicorn_config
from gateway.http.state import EdgeHooks, EdgeState, ShutdownEvents
from tests.gateway.http.conftest import ManualClock

_HOST = b"Host: edge.test\r\n"
_OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"

REQUESTS = [
    (b"GET /a?x HTTP/1.1\r\n" + _HOST + b"\r\n", ("/a", b"")),
    (b"POST /b HTTP/1.1\r\n" + _HOST + b"Content-Length: 5\r\n\r\nabcde", ("/b", b"abcde")),
    (b"POST /empty HTTP/1.1\r\n" + _HOST + b"Content-Length: 0\r\n\r\n", ("/empty", b"")),
    (
        b"POST /c HTTP/1.1\r\n"
        + _HOST
        + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: u\r\n\r\n",
        ("/c", b"abcde"),
    ),
    (b"POST /d HTTP/1.1\r\n" + _HOST + _OFFER + b"Content-Length: 3\r\n\r\nabc", ("/d", b"abc")),
    (b"\r\nGET /e HTTP/1.1\r\n" + _HOST + b"X-Long: " + b"v" * 200 + b" \t\r\n\r\n", ("/e", b"")),
]


class RecordingTransport(asyncio.Transport):
    """Keeps what was written; never fills up."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_eof = False
        self._is_closing = False

    def write(self, data: Any) -> None:
        self.written += data

    def write_eof(self) -> None:
        self.is_eof = True

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self._is_closing = True

    abort = close

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def _connect(
    seen: list[tuple[str, bytes]], limits: EdgeLimits | None = None
) -> tuple[EdgeProtocol, RecordingTransport]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["path"], await read_body(receive, 10**6)))
        await respond(send, 200, [], scope["path"].encode())

    state = EdgeState(
        name="public",
        limits=limits or EdgeLimits(),
        loop=asyncio.get_running_loop(),
        clock=ManualClock(),
        resolution_s=0.25,
        shutdown=ShutdownEvents(leaving=asyncio.Event(), draining=asyncio.Event()),
        hooks=EdgeHooks(new_request_id=lambda: "req_1", on_refusal=lambda listener, error: None),
    )
    protocol = EdgeProtocol(uvicorn_config(app), state)
    transport = RecordingTransport()
    protocol.connection_made(transport)
    return protocol, transport


async def _settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


@given(
    picks=st.lists(st.sampled_from(range(len(REQUESTS))), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 1500), max_size=12),
    settles=st.booleans(),
)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_requests_are_the_same_however_their_bytes_are_cut(picks: list[int], cuts: list[int], settles: bool) -> None:
    async def check() -> None:
        seen: list[tuple[str, bytes]] = []
        protocol, transport = _connect(seen)
        data = b"".join(REQUESTS[pick][0] for pick in picks)
        places = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
        for begin, end in itertools.pairwise(places):
            if begin < end:
                protocol.data_received(data[begin:end])
                if settles:
                    await _settle()
        for _ in picks:
            await _settle()
        assert seen == [REQUESTS[pick][1] for pick in picks]
        assert transport.written.count(b"HTTP/1.1 200 OK") == len(picks)
        assert not transport.is_closing()
        assert not transport.is_eof
        protocol.connection_lost(None)

    asyncio.run(check())


@pytest.mark.parametrize("pick", range(len(REQUESTS)))
async def test_a_request_arrives_whole_byte_by_byte(pick: int) -> None:
    seen: list[tuple[str, bytes]] = []
    protocol, _ = _connect(seen)
    for byte in REQUESTS[pick][0]:
        protocol.data_received(bytes([byte]))
        await asyncio.sleep(0)
    await _settle()
    assert seen == [REQUESTS[pick][1]]


async def test_a_large_head_behind_the_rest_of_a_body_is_not_mistaken_for_its_own_size() -> None:
    seen: list[tuple[str, bytes]] = []
    protocol, transport = _connect(seen, EdgeLimits(header=HeaderLimits(max_bytes=1000)))
    protocol.data_received(b"POST /b HTTP/1.1\r\n" + _HOST + b"Content-Length: 5000\r\n\r\n")
    # One read: 5000 bytes of body, then half of a head that is within its limit.
    protocol.data_received(b"a" * 5000 + b"GET /a HTTP/1.1\r\n" + _HOST + b"X-Half: " + b"v" * 900)
    await _settle()
    protocol.data_received(b"\r\n\r\n")
    await _settle()
    assert [path for path, _ in seen] == ["/b", "/a"]
    assert b"431" not in transport.written


async def test_a_head_too_large_is_found_even_when_it_began_behind_a_body() -> None:
    seen: list[tuple[str, bytes]] = []
    protocol, transport = _connect(seen, EdgeLimits(header=HeaderLimits(max_bytes=1000)))
    protocol.data_received(b"POST /b HTTP/1.1\r\n" + _HOST + b"Content-Length: 5\r\n\r\n")
    protocol.data_received(b"abcdeGET /a HTTP/1.1\r\n" + _HOST + b"X-Half: " + b"v" * 1100)
    await _settle()
    protocol.data_received(b"\r\n\r\n")
    await _settle()
    assert [path for path, _ in seen] == ["/b"]
    assert transport.written.count(b"HTTP/1.1 431 ") == 1
    assert transport.is_eof

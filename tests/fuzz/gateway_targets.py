"""What the gateway reads from strangers, as functions of bytes that raise nothing but a finding."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from gateway.chat.operation import CHAT
from gateway.chat.request import ChatRequestParser
from gateway.completion.answers import end_of_answer
from gateway.completion.stream_outcome import StreamOutcome
from gateway.dialects.messages.request import MessagesParser
from gateway.errors import GatewayError
from gateway.http.server import Listener, Server
from gateway.upstreams.http1.reader import ResponseReader, WireError, WireLimits
from gateway.upstreams.http1.sse import SseDecoder, SseError, SseEvent, SseProgress
from loadtests.simulation.virtual_loop import VirtualLoop
from routing_policies.loading import load_policy
from routing_policies.policy.problems import PolicyError

_PARSER: Final = ChatRequestParser()
_MESSAGES: Final = MessagesParser(_PARSER)
_LIMITS: Final = WireLimits(max_head_bytes=4096)


def chat_request(data: bytes) -> None:
    """A body of chat completions is a request or a refusal; as a request it can be sent on."""
    try:
        request = _PARSER.parse(data)
    except GatewayError:
        return
    assert _PARSER.parse(request.body_for("other")).fields.model == "other"


def messages_request(data: bytes) -> None:
    """A body of the Messages API."""
    try:
        _MESSAGES.parse(data)
    except GatewayError:
        return


def whole_answer(data: bytes) -> None:
    """A plain answer of an upstream."""
    end_of_answer(data, CHAT)


def sse(data: bytes) -> None:
    """An event stream is the same events however it is cut."""
    whole, pieces = _events(data, len(data) or 1), _events(data, 1 + data[0] % 7 if data else 1)
    assert whole == pieces, f"{whole!r} in one piece, {pieces!r} in several"
    progress, outcome = SseProgress(), StreamOutcome()
    for start in range(0, len(data), 5):
        progress(data[start : start + 5])
        outcome.feed(data[start : start + 5])
    outcome.end()


def _events(data: bytes, size: int) -> list[SseEvent] | None:
    decoder, found = SseDecoder(4096), list[SseEvent]()
    try:
        for start in range(0, len(data), size):
            found += decoder.feed(data[start : start + size])
    except SseError:
        return None
    return found


def upstream_response(data: bytes) -> None:
    """Head and chunked body of an upstream's response are the same however they are cut."""
    whole, pieces = _response(data, len(data) or 1), _response(data, 1 + data[-1] % 5 if data else 1)
    assert whole == pieces, f"{whole!r} in one piece, {pieces!r} in several"


def _response(data: bytes, size: int) -> tuple[int, bytes, bool] | None:
    reader = ResponseReader(_LIMITS)
    reader.begin(b"POST")
    body = b""
    try:
        for start in range(0, len(data), size):
            if reader.is_complete:
                return None  # bytes behind the response, which the connection refuses
            reader.feed(data[start : start + size])
            body += b"".join(reader.pieces)
            reader.pieces = []
        return reader.status, body, reader.is_complete or reader.eof()
    except WireError:
        return None
    finally:
        reader.close()


class _Transport(asyncio.Transport):
    """Remembers what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def write(self, data: Any) -> None:
        if not self.is_closed:
            self.written += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """See `close`."""

    def pause_reading(self) -> None:
        """Nothing is read by itself."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def get_write_buffer_size(self) -> int:
        return 0


class _Edge:
    """The public listener's protocol in front of an application that answers at once, without a socket."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.num_served = 0
        self._faults: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self._faults.append(context))
        server = Server([Listener(name="public", address="", app=self._serve)], new_request_id=lambda: "req_0")
        self.loop.run_until_complete(server.start())
        self._make = server._makers["public"]

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        self.num_served += 1
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def feed(self, data: bytes, size: int) -> bytes:
        """What a client gets for these bytes, sent in pieces."""
        protocol, transport = self._make(), _Transport()
        protocol.connection_made(transport)
        for start in range(0, len(data), size):
            if not transport.is_closed:
                protocol.data_received(data[start : start + size])
                self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.run_until_complete(asyncio.sleep(0.1))
        protocol.connection_lost(None)
        self.loop.run_until_complete(asyncio.sleep(0.1))
        assert not self._faults, f"the event loop was told of {self._faults}"
        return transport.written


_EDGE: list[_Edge] = []
"""Made with the first call."""


def http_request(data: bytes) -> None:
    """Bytes on the public port: answers that are HTTP, and no failure inside."""
    if not _EDGE:
        _EDGE.append(_Edge())
    for size in (len(data) or 1, 1 + data[0] % 9 if data else 1):
        written = _EDGE[0].feed(data, size)
        assert not written or written.startswith((b"HTTP/1.1 ", b"\x00\x00")), f"{written[:80]!r}"
        assert b" 500 " not in written, f"{written[:200]!r}"


def policy(data: bytes) -> None:
    """A policy document is a policy or a list of problems."""
    try:
        load_policy(data.decode("utf-8", "surrogateescape"), source="fuzz.yaml")
    except (PolicyError, UnicodeEncodeError):
        return

"""One client connection: uvicorn's httptools protocol with the limits, deadlines and strictness it does not have.

`tests/http` runs every vector against this protocol and the gateway's, which may not share code.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from functools import cache
from http import HTTPStatus
from typing import Any, Final, Literal

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from engine.frontend.http.head import (
    HTTP2_FAREWELL,
    PRIOR_KNOWLEDGE,
    check_head,
    head_without_upgrade,
    malformed,
    refuse_websocket,
    unparsable,
)
from engine.frontend.request.asgi import CONNECTION_EXTENSION
from engine.frontend.request.errors import ApiError

logger = logging.getLogger(__name__)

MAX_HEADER_BYTES: Final = 32 * 1024
MAX_HEADERS: Final = 100
MAX_URI_BYTES: Final = 8 * 1024
HEADERS_TIMEOUT_S = 10.0
BODY_TIMEOUT_S = 60.0
LINGER_S = 2.0
"""Seconds of reading on after a refusal, because unread input would make the kernel drop the answer."""
MAX_PIPELINED: Final = 16
MAX_PIPELINED_BODY_BYTES: Final = 64 * 1024
_FRAMING_PER_BODY_BYTE: Final = 8


class LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with bounds on what a request may weigh and how long it may take to arrive; errors have the envelope.

    Pipelined requests are answered in order while they are few and small. uvicorn stops reading instead, and would not
    see the client leave; here the bytes are taken in, and a fault among them is answered behind what came whole.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reading: Literal["idle", "head", "body"] = "idle"
        """Part of the request that the next byte belongs to."""
        self._part = 0
        """Serial number of the present head or body."""
        self._part_bytes = self._body_bytes = self._num_trailers = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        self._fault: ApiError | None = None
        """Error that a callback is about to raise; the parser only reports that a callback failed."""
        self._deferred: ApiError | None = None
        """A refusal that waits for the answers before it."""
        self._is_deaf = False
        """True if incoming bytes are dropped, because the connection is being closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout within which a new client must send a head."""
        super().connection_made(transport)
        self._expect_within(HEADERS_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Disconnect the request that is being answered, not only the last one that arrived."""
        self._stop_expecting()
        running = self._running
        super().connection_lost(exc)
        _lose(running)

    def data_received(self, data: bytes) -> None:
        """Receive bytes of requests; no timer is set for a request that arrives whole."""
        if self._is_deaf:
            return
        part = self._part
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._replay_upgrade(data[upgrade.args[0] :])
        except HttpParserError as error:
            if data.startswith(PRIOR_KNOWLEDGE) and self._running is None:
                self._go_away()
            else:
                self._refuse(self._fault or unparsable(str(error), data))
        else:
            if self._reading != "idle":
                self._follow(len(data), is_new=part != self._part)

    def _go_away(self) -> None:
        """End a connection that begins as HTTP/2, in that protocol's own frames."""
        self._stop_expecting()
        _warn_of_http2()
        self._write_and_close(HTTP2_FAREWELL)

    def _follow(self, num_bytes: int, *, is_new: bool) -> None:
        """Bound a part that did not end with the read: in time, and in what it adds to a head or to framing."""
        if is_new:
            self._part_bytes = 0
            self._expect_within(HEADERS_TIMEOUT_S if self._reading == "head" else BODY_TIMEOUT_S)
            return
        self._part_bytes += num_bytes
        if self._reading == "head" and self._part_bytes - len(self.url) > MAX_HEADER_BYTES:
            self._refuse(_headers_too_large())
        elif self._part_bytes > MAX_HEADER_BYTES + MAX_URI_BYTES + _FRAMING_PER_BODY_BYTE * self._body_bytes:
            self._refuse(malformed("the chunk framing outweighs the body"))

    def _replay_upgrade(self, rest: bytes) -> None:
        """Serve a request that offers another protocol as plain HTTP: parse it again without the offer."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        head = head_without_upgrade(method, self.url, version, self.headers)
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(head + rest)

    # Parser callbacks; what they raise ends in `data_received`

    def on_message_begin(self) -> None:
        """Begin a request."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise self._faulty(malformed(f"more than {MAX_PIPELINED} requests are pipelined"))
        super().on_message_begin()
        self._unset_keepalive_if_required()
        self._begin_part("head")

    def on_url(self, url: bytes) -> None:
        """Receive a part of the request target."""
        super().on_url(url)
        if len(self.url) > MAX_URI_BYTES:
            message = f"The URI exceeds {MAX_URI_BYTES} bytes. Move data into the body."
            raise self._faulty(ApiError(414, message, code="uri_too_long"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Receive a header field; those behind a chunked body (trailers) are counted and dropped."""
        if self._reading == "head":
            self.headers.append((name.lower(), value.rstrip(b" \t")))
            return
        self._num_trailers += 1
        if self._num_trailers > MAX_HEADERS:
            raise self._faulty(_headers_too_large())

    def on_headers_complete(self) -> None:
        """Start the request; its body must follow in time."""
        headers = self.headers
        try:
            num_bytes = sum([len(name) + len(value) + 4 for name, value in headers])
            if num_bytes > MAX_HEADER_BYTES or len(headers) > MAX_HEADERS:
                raise _headers_too_large()
            single = check_head(self.parser.get_method(), self.parser.get_http_version(), self.url, headers)
            if self.parser.should_upgrade():
                refuse_websocket(headers)
                return  # `_replay_upgrade` parses this request again
        except ApiError as error:
            raise self._faulty(error) from None
        if self.url == b"*":
            self.url = b"/*"  # uvicorn knows no other form of a target
        self.expect_100_continue = b"expect" in single
        self._begin_part("body")
        super().on_headers_complete()
        if self.cycle is not self._running:
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        """Receive a part of the body."""
        self._body_bytes += len(body)
        if self.cycle is not self._running and len(self.cycle.body) + len(body) > MAX_PIPELINED_BODY_BYTES:
            message = f"The body of a pipelined request exceeds {MAX_PIPELINED_BODY_BYTES} bytes."
            raise self._faulty(ApiError(413, message, code="request_too_large"))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Complete the request."""
        if self._reading == "head":  # an upgrade offer, about to be parsed again
            return
        self._reading = "idle"
        self._stop_expecting()
        super().on_message_complete()

    def _begin_part(self, reading: Literal["head", "body"]) -> None:
        self._reading = reading
        self._part += 1
        self._body_bytes = self._num_trailers = 0

    def _faulty(self, error: ApiError) -> ApiError:
        self._fault = error
        return error

    # Answering

    def on_response_complete(self) -> None:
        """Continue with the next request, or with the refusal behind the last one."""
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last and self._deferred is not None:
            self._answer_and_close(self._deferred)

    def abort(self) -> None:
        """End the connection now; what is still buffered is lost."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.abort()

    def close_when_sent(self) -> None:
        """Close when everything written so far is sent."""
        if self.transport is not None:
            self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.scope["extensions"] = {CONNECTION_EXTENSION: self}  # type: ignore[dict-item]
        super()._start_asgi_task(cycle, app)

    def _refuse(self, error: ApiError) -> None:
        """Answer a fault in what is being read: at once, after earlier answers, or by closing when it is too late."""
        self._stop_expecting()
        self._is_deaf = True
        running = self._running
        if running is None or running.response_complete:
            self._answer_and_close(error)
        elif not running.more_body:
            while self.pipeline and self.pipeline[0][0].more_body:
                self.pipeline.popleft()
            self._deferred = error
        elif running.response_started:
            self.transport.close()  # the response on the wire stays visibly cut
        else:
            _lose(running)
            self._answer_and_close(error)

    def _answer_and_close(self, error: ApiError) -> None:
        """Send the error as the connection's last response."""
        if self.transport.is_closing():
            return
        body = error.body()
        fields = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
        fields |= {"x-request-id": secrets.token_hex(16), "connection": "close"}
        lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        self._write_and_close("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def _write_and_close(self, last_bytes: bytes) -> None:
        """Close the write side behind some bytes; reading goes on for a while."""
        self.transport.write(last_bytes)
        self._is_deaf = True
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        self._deadline = self.loop.call_later(LINGER_S, self.transport.close)

    # Time

    def _expect_within(self, seconds: float) -> None:
        self._stop_expecting()
        self._deadline = self.loop.call_later(seconds, self._late)

    def _stop_expecting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        if self._part:
            self._refuse(ApiError(408, "The request did not arrive in time. Send it again.", code="request_timeout"))
        else:
            self.transport.close()  # it never began one


@cache
def _warn_of_http2() -> None:
    """Log that a client speaks HTTP/2, once in the life of the process."""
    logger.warning("a client speaks HTTP/2, which is not served here; let it use HTTP/1.1. Logged once.")


def _headers_too_large() -> ApiError:
    message = f"The headers exceed {MAX_HEADER_BYTES} bytes or {MAX_HEADERS} fields. Send less."
    return ApiError(431, message, code="headers_too_large")


def _lose(cycle: RequestResponseCycle | None) -> None:
    """Notify a request's application that its client is gone."""
    if cycle is not None and not cycle.response_complete:
        cycle.disconnected = True
        cycle.message_event.set()

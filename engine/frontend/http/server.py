"""uvicorn, with the limits it lacks and the drain the engine needs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from engine.config import EngineConfigError
from engine.frontend.http.upgrade import head_without_upgrade, is_websocket
from engine.frontend.request.asgi import CONNECTION_EXTENSION
from engine.frontend.request.errors import ApiError

MAX_HEADER_BYTES = 32 * 1024
MAX_HEADERS = 100
MAX_URI_BYTES = 8 * 1024
HEADERS_TIMEOUT_S = 10.0
BODY_TIMEOUT_S = 60.0
KEEP_ALIVE_S = 75
MAX_PIPELINED = 16
MAX_PIPELINED_BODY_BYTES = 64 * 1024
_DATE_PERIOD_S = 1.0


class LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with bounds on headers and on the time a request may take to arrive; errors have the envelope.

    Pipelined requests are answered in order while they are few and small. uvicorn stops reading instead, and would not
    see the client leave; here the bytes are taken in, and what is too much of them ends the connection behind the
    answers to what came whole.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._num_header_bytes = 0
        self._arrival: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        self._is_deaf = False
        """What comes now is dropped: the connection ends behind the answers that it still owes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client that connects must send something."""
        super().connection_made(transport)
        self._expect_within(HEADERS_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request of the connection, not only the one that came last."""
        self._stop_expecting()
        running = self._running
        super().connection_lost(exc)
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        if self._is_deaf:
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._replay_upgrade(data[upgrade.args[0] :])
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _replay_upgrade(self, rest: bytes) -> None:
        """Serve a request that offers another protocol as plain HTTP: parse it again without the offer."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        head = head_without_upgrade(method, self.url, version, self.headers)
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(head + rest)

    def on_message_begin(self) -> None:
        """A request starts to arrive."""
        if len(self.pipeline) >= MAX_PIPELINED:
            self._end_behind_answers()
            raise HttpParserError("too many pipelined requests")
        super().on_message_begin()
        self._num_header_bytes = 0
        self._expect_within(HEADERS_TIMEOUT_S)

    def on_url(self, url: bytes) -> None:
        """A part of the request target."""
        super().on_url(url)
        if len(self.url) > MAX_URI_BYTES:
            self._refuse(414, f"The URI exceeds {MAX_URI_BYTES} bytes.", "uri_too_long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field."""
        super().on_header(name, value)
        self._num_header_bytes += len(name) + len(value) + 4
        if self._num_header_bytes > MAX_HEADER_BYTES or len(self.headers) > MAX_HEADERS:
            message = f"The headers exceed {MAX_HEADER_BYTES} bytes or {MAX_HEADERS} fields."
            self._refuse(431, message, "headers_too_large")

    def on_headers_complete(self) -> None:
        """The request can start; its body must follow in time."""
        self._expect_within(BODY_TIMEOUT_S)
        self._check_head()
        if self.parser.should_upgrade():
            return  # `_replay_upgrade` parses this request again
        super().on_headers_complete()
        if self.cycle is not self._running:
            self.flow.resume_reading()

    def _check_head(self) -> None:
        """Refuse what only looks like a request of ours. Raises into the parser."""
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            self._refuse(400, "Only HTTP/1.1 and HTTP/1.0 are served on this port.", "invalid_value")
        if self.parser.get_method() == b"CONNECT":
            self._refuse(405, "CONNECT is not allowed here.", "method_not_allowed")
        if any(name == b"expect" and value.lower() != b"100-continue" for name, value in self.headers):
            self._refuse(417, "The only expectation served is 100-continue.", "invalid_value")
        if self.parser.should_upgrade() and is_websocket(self.headers):
            message = "WebSocket is not served here; use plain HTTP with server-sent events (stream: true)."
            self._refuse(400, message, "invalid_value")

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self.cycle is not self._running and len(self.cycle.body) + len(body) > MAX_PIPELINED_BODY_BYTES:
            self._end_behind_answers()
            raise HttpParserError("large pipelined request")
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self.parser.should_upgrade():
            return
        self._stop_expecting()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """The answer to bytes that are not HTTP."""
        if self._is_answering:
            self._end_behind_answers()
            return
        self._answer_and_close(ApiError(400, msg, code="invalid_value"))

    def abort(self) -> None:
        """End the connection now; what is still buffered is lost."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.abort()

    def close_when_sent(self) -> None:
        """Close when everything written so far is sent."""
        if self.transport is not None:
            self.transport.close()

    @property
    def _is_answering(self) -> bool:
        """Whether a request is complete and its answer is not."""
        running = self._running
        return running is not None and not running.more_body and not running.response_complete

    def _end_behind_answers(self) -> None:
        """Answer what came whole, then close; nothing else can be said while an answer is under way."""
        assert self._running is not None
        self._stop_expecting()
        self._is_deaf = True
        while self.pipeline and self.pipeline[0][0].more_body:
            self.pipeline.popleft()
        last = self.pipeline[0][0] if self.pipeline else self._running
        last.keep_alive = False

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.scope["extensions"] = {CONNECTION_EXTENSION: self}  # type: ignore[dict-item]
        super()._start_asgi_task(cycle, app)

    def _expect_within(self, seconds: float) -> None:
        self._stop_expecting()
        self._arrival = self.loop.call_later(seconds, self._late)

    def _stop_expecting(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _late(self) -> None:
        if self._is_answering:
            self._end_behind_answers()
        elif self._running is not None and not self._running.response_complete:
            self.transport.close()  # an answer is under way on this connection: nothing else can be said on it
        else:
            self._answer_and_close(ApiError(408, "The request did not arrive in time.", code="request_timeout"))

    def _refuse(self, status: int, message: str, code: str) -> None:
        """Answer, close, and stop the parser. Raises into it."""
        if self._is_answering:
            self._end_behind_answers()
        else:
            self._answer_and_close(ApiError(status, message, code=code))
        raise HttpParserError(message)

    def _answer_and_close(self, error: ApiError) -> None:
        if self.transport.is_closing():
            return
        body = error.body()
        lines = (
            f"HTTP/1.1 {error.status} {_PHRASES.get(error.status, 'Bad Request')}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
        )
        self.transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        self.transport.close()


_PHRASES = {
    400: "Bad Request",
    405: "Method Not Allowed",
    408: "Request Timeout",
    414: "URI Too Long",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
}


class DrainingServer(uvicorn.Server):
    """A server that tells of a signal instead of stopping; `stop` stops it."""

    def __init__(self, config: uvicorn.Config, on_signal: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_signal = on_signal
        self._stopped = asyncio.Event()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM or SIGINT."""
        self._on_signal()

    def stop(self) -> None:
        """Close connections and return from `serve`."""
        self.should_exit = True
        self._stopped.set()

    async def main_loop(self) -> None:
        """Keep the date header true until `stop`; uvicorn's own loop wakes ten times a second for that."""
        while not self.should_exit:
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), _DATE_PERIOD_S)


def server_config(app: Any) -> uvicorn.Config:
    """uvicorn as the engine runs it."""
    return uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=5,
    )


def bind(listen: str) -> socket.socket:
    """A listening socket for `unix:/path` or `host:port`. Raises EngineConfigError."""
    try:
        if listen.startswith("unix:"):
            return _bind_unix(Path(listen.removeprefix("unix:")))
        host, separator, port = listen.rpartition(":")
        if not separator or not port.isdigit():
            raise EngineConfigError(f"listen: expected unix:/path or host:port, got {listen!r}")
        host = host.strip("[]") or "127.0.0.1"
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family, backlog=2048)
    except OSError as error:
        raise EngineConfigError(f"listen: {listen}: {error.strerror or error}") from error


def _bind_unix(path: Path) -> socket.socket:
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        _remove_if_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        os.chmod(path, 0o600)
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_if_stale(path: Path) -> None:
    """A socket file nobody listens on is what a killed process left behind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise EngineConfigError(f"listen: unix:{path}: another process listens there")

"""One request and its response on the wire: framing, backpressure, and word of the client's leaving."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING

from uvicorn._types import ASGI3Application, ASGISendEvent, HTTPScope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.errors import InternalError
from gateway.http.refusal import render_refusal

if TYPE_CHECKING:
    from gateway.http.state import EdgeState

_LOGGER = logging.getLogger("penstock.edge")
_FRAMING_HEADERS = frozenset({b"content-length", b"transfer-encoding", b"connection"})
_BODILESS = frozenset({204, 304})
_COPIED_BYTES = 64 * 1024


class Framing(Enum):
    """The ways to mark the end of a response body."""

    UNDECIDED = auto()
    NONE = auto()
    LENGTH = auto()
    CHUNKED = auto()
    CLOSE = auto()


class Outflow(FlowControl):
    """A connection's outgoing side: counts written bytes, so that a client that reads nothing is seen."""

    def __init__(self, transport: asyncio.Transport, now: float) -> None:
        super().__init__(transport)
        self._written = 0
        self._flushed = 0
        self._moved_at = now

    def write(self, data: bytes) -> None:
        """Queue bytes on the transport."""
        self._written += len(data)
        self._transport.write(data)

    def has_stalled(self, now: float, limit_s: float) -> bool:
        """Return whether bytes are waiting and none left for `limit_s`; call it a few times per limit."""
        waiting = self._transport.get_write_buffer_size()
        flushed = self._written - waiting
        if waiting == 0 or flushed != self._flushed:
            self._flushed = flushed
            self._moved_at = now
            return False
        return now - self._moved_at >= limit_s


class Exchange(RequestResponseCycle):
    """uvicorn's request-response cycle with one write per plain answer, and the request's EdgeChannel."""

    flow: Outflow

    def __init__(
        self,
        *,
        scope: HTTPScope,
        transport: asyncio.Transport,
        flow: Outflow,
        edge: EdgeState,
        expects_continue: bool,
        keep_alive: bool,
        on_response: Callable[[], None],
    ) -> None:
        super().__init__(
            scope=scope,
            transport=transport,
            flow=flow,
            logger=_LOGGER,
            access_logger=_LOGGER,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=expects_continue,
            keep_alive=keep_alive,
            on_response=on_response,
        )
        self.task: asyncio.Task[None] | None = None
        self.is_stopping = False
        self.is_on_wire = False  # something of the response was written: it can no longer be replaced
        self._edge = edge
        self._framing = Framing.UNDECIDED
        self._head: bytes | None = None
        self._gone_callbacks: list[Callable[[], None]] = []
        scope["extensions"] = {"penstock": self}  # type: ignore[dict-item] # an object, where ASGI means a dict

    # EdgeChannel

    @property
    def is_gone(self) -> bool:
        """True once the client has left, so that this response has no reader."""
        return self.disconnected

    def take_body(self) -> bytes | None:
        """Return the request's body, once, when all of it is here; None when it has to be awaited with `receive`."""
        if self.more_body or self.disconnected or self.waiting_for_100_continue:
            return None
        body, self.body = bytes(self.body), bytearray()
        self.flow.resume_reading()
        return body

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Call back when the client goes before the response is complete; at once when it is gone already."""
        if self.disconnected:
            callback()
        else:
            self._gone_callbacks.append(callback)

    def off_gone(self, callback: Callable[[], None]) -> None:
        """Take a callback back; unknown ones are ignored."""
        if callback in self._gone_callbacks:
            self._gone_callbacks.remove(callback)

    def respond(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole response in one write; False when `drain` should be awaited."""
        self._prepare_head(status, (*headers, (b"content-length", b"%d" % len(body))))
        self._send_body(body, more_body=False)
        return self.disconnected or not self.flow.write_paused

    def write(self, data: bytes) -> bool:
        """Send body bytes; False when `drain` should be awaited before the next ones."""
        if data:
            if self._framing is Framing.CHUNKED and self._head is None and not self.response_complete:
                if not self.disconnected:  # one more of many
                    self.flow.write(b"%x\r\n%b\r\n" % (len(data), data))
            else:
                self._send_body(data, more_body=True)
        return self.disconnected or not self.flow.write_paused

    async def drain(self) -> None:
        """Return when the write buffer has room again, or the client is gone."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()

    # ASGI

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Run the application for this request and answer for it when it fails to."""
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._answer_for_application()
        except Exception:  # the server's last line: whatever an application raises must not end the connection's task
            _LOGGER.exception("the application failed")
            self._answer_for_application()
        else:
            if not self.response_complete and not self.disconnected:
                _LOGGER.error("the application returned without completing its response")
                self._answer_for_application()
        finally:
            self.on_response = _nothing
            self._gone_callbacks.clear()
            self.scope["extensions"].clear()  # the scope holds the channel, which holds the scope

    async def send(self, message: ASGISendEvent) -> None:
        """Send the head or a piece of the body; waits while the client reads slower than we write."""
        if message["type"] == "http.response.body":
            self._send_body(message.get("body", b""), more_body=message.get("more_body", False))
        elif message["type"] == "http.response.start":
            self._send_start(message["status"], message.get("headers", ()))
        else:
            raise RuntimeError(f"unexpected ASGI message {message['type']!r}")
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()

    # Events of the connection

    def mark_gone(self) -> None:
        """Mark the response as unwanted: wake the waiting application and notify the watchers."""
        if self.disconnected or self.response_complete:
            return
        self.disconnected = True
        self._head = None
        self.body = bytearray()
        self.message_event.set()
        self.flow.resume_writing()
        callbacks, self._gone_callbacks = self._gone_callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:  # one that fails must not keep the others, or the connection, from ending
                _LOGGER.exception("a disconnect callback failed")

    def stop(self) -> None:
        """Cancel the application after a drain ran out of time; it may still send a last event."""
        self.is_stopping = True
        if self.task is not None:
            self.task.cancel()

    # The response on the wire

    def _send_start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep the head back until the loop's next turn, so that a body that follows at once goes with it."""
        self._prepare_head(status, headers)
        if self._head is not None:
            self._edge.loop.call_soon(self._flush_head)

    def _prepare_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self.response_started:
            raise RuntimeError("http.response.start was sent twice")
        self.response_started = True
        if self.disconnected:
            return
        if self.waiting_for_100_continue:
            # The body was never requested: the client may send it or not, so the bytes behind are ambiguous.
            self.waiting_for_100_continue = False
            self.keep_alive = False
        lines = [STATUS_LINE[status], self._edge.date_line]
        num_lines = 2
        for header in headers:
            name, value = header
            if name in _FRAMING_HEADERS and self._take_framing(name, value):
                continue
            lines += (name, b": ", value, b"\r\n")
            num_lines += 1
        if status in _BODILESS or self.scope["method"] == "HEAD":
            self._framing = Framing.NONE
        head = b"".join(lines)
        if head.count(b"\n") != num_lines or head.count(b"\r") != num_lines or b"\0" in head:
            raise RuntimeError("a response header contains a line break or NUL")
        self._head = head

    def _take_framing(self, name: bytes, value: bytes) -> bool:
        """Learn the framing from a header; True when the header is written by this class instead."""
        if name == b"content-length":
            self.expected_content_length = int(value)
            self._framing = Framing.LENGTH
            return False
        if name == b"connection" and b"close" in value.lower():
            self.keep_alive = False
        return True

    def _flush_head(self) -> None:
        if self._head is not None and not self.transport.is_closing():
            self._put(self._finish_head(None))

    def _finish_head(self, body_length: int | None) -> bytes:
        """Return the head with its framing lines; `body_length` is known when the whole body goes with it."""
        assert self._head is not None, "the head is finished once"
        head, self._head = self._head, None
        tail = b""
        if self._framing is Framing.UNDECIDED:
            if body_length is not None:
                self._framing = Framing.LENGTH
                self.expected_content_length = body_length
                tail = b"content-length: %d\r\n" % body_length
            elif self.scope["http_version"] == "1.1":
                self._framing = Framing.CHUNKED
                tail = b"transfer-encoding: chunked\r\n"
            else:
                self._framing = Framing.CLOSE
                self.keep_alive = False
        if not self.keep_alive:
            tail += b"connection: close\r\n"
        return b"%b%b\r\n" % (head, tail)

    def _send_body(self, body: bytes, *, more_body: bool) -> None:
        if self.disconnected:
            return
        if self.response_complete or not self.response_started:
            raise RuntimeError("http.response.body was sent outside a response")
        data = b"" if self._head is None else self._finish_head(None if more_body else len(body))
        if self._framing is Framing.CHUNKED:
            if body:
                data = b"%b%x\r\n%b\r\n" % (data, len(body), body)
            if not more_body:
                data += b"0\r\n\r\n"
        elif self._framing is Framing.LENGTH:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0 or (self.expected_content_length and not more_body):
                raise RuntimeError("the response body does not match its content-length")
            if data and len(body) > _COPIED_BYTES:  # two writes cost less than a copy, and less memory
                self._put(data)
                data = body
            else:
                data = data + body if data else body
        elif self._framing is Framing.CLOSE:
            data += body
        if data:
            self._put(data)
        if not more_body:
            self._complete()

    def _put(self, data: bytes) -> None:
        self.is_on_wire = True
        self.flow.write(data)

    def _complete(self) -> None:
        self.response_complete = True
        self.body = bytearray()  # unread bytes are dropped
        self.message_event.set()
        self._gone_callbacks.clear()
        self.on_response()

    def _answer_for_application(self) -> None:
        """End a response that the application left unfinished.

        Send 500 when nothing was sent; cut the connection when something was, so that no broken response appears whole.
        """
        if self.disconnected or self.response_complete:
            return
        if self.is_on_wire:
            if self._framing is Framing.CLOSE:
                self.transport.abort()  # an orderly close would look like the end of the body
            else:
                self.transport.close()
            return
        self._head = None
        self.response_started = True
        self.keep_alive = False
        request_id = self.scope["state"].get("request_id") or self._edge.new_request_id()
        self._put(render_refusal(InternalError(request_id), request_id=request_id, date_line=self._edge.date_line))
        self._complete()


def _nothing() -> None:
    """Stands in for `on_response` once the request is over, which breaks the reference cycle."""

"""One client connection: uvicorn's httptools protocol with the limits, deadlines and strictness it does not have.

Reading is a small machine (`Reading`), answering a queue of exchanges of which the first runs. Two rules keep them
apart: while a whole request is being answered, later bytes are held back unparsed (a FIN behind them is still seen);
and a fault found behind unanswered requests is answered after them.

A half-closed connection (FIN from a client that waits for its answer) counts as gone: a proxy cannot tell it from a
client that left, and generating for nobody costs more than refusing the few clients that half-close.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING, cast

import httptools
from uvicorn._types import HTTPScope
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.errors import GatewayError
from gateway.http.exchange import Exchange, Outflow
from gateway.http.head import RequestHead, read_head, request_too_large
from gateway.http.refusal import HeadersTooLarge, MalformedRequest, RequestTimeout, UpgradeNotServed, UriTooLong
from gateway.http.upgrade import head_without_upgrade, is_websocket

if TYPE_CHECKING:
    from gateway.http.state import EdgeState

_ASGI = {"version": "3.0", "spec_version": "2.3"}
_HELD_LIMIT = 64 * 1024
_STALL_LOOKS = 4
_BODY_LOOK_S = 1.0
_FRAMING_PER_BODY_BYTE = 8


class Reading(Enum):
    """What the next byte from the client belongs to."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    DEAF = auto()  # nothing: the connection is being closed, bytes are dropped


class EdgeProtocol(HttpToolsProtocol):
    """One connection. Everything time-related happens in `on_deadline`, which the listener's wheel calls."""

    flow: Outflow

    def __init__(self, config: Config, edge: EdgeState) -> None:
        super().__init__(config, edge, {}, edge.loop)
        self.edge = edge
        self.limits = edge.limits
        self.running: Exchange | None = None
        self.exchange: Exchange | None = None  # the last one read; `running` or waiting behind it
        self._ip: str | None = None
        self._is_admitted = False
        self._reading = Reading.IDLE
        self._since = 0.0  # when `_reading`, or the wait for the next request, began
        self._has_served = False
        self._fault: GatewayError | None = None
        self._deferred: GatewayError | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._begun_in_feed = 0
        self._wire_bytes = 0  # of the part being read, chunk framing included
        self._body_bytes = 0
        self._num_trailers = 0
        self._replays_upgrade = False

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection in, or refuse it with one prepared write."""
        self.transport = transport
        super().connection_made(transport)
        now = self.edge.clock()
        self.flow = Outflow(transport, now)
        transport.set_write_buffer_limits(high=self.limits.write_high_water_bytes)
        self._ip = self.client[0] if self.client else None
        self._is_admitted = self.edge.admit(self, self._ip)
        if not self._is_admitted:
            self._reading = Reading.DEAF
            self.flow.write(self.edge.refuse_connection())
            transport.close()
            return
        self._since = now
        self.edge.wheel.look_at(self, now + self.limits.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the requests under way that nobody waits for them."""
        if self._is_admitted:
            self.edge.release(self, self._ip)
        self._reading = Reading.DEAF
        self._lose_exchanges()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """A half-close counts as gone (see above); returning None closes the transport."""
        self._reading = Reading.DEAF
        self._lose_exchanges()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless these bytes must wait or are no longer of interest."""
        if self._reading is Reading.DEAF:
            self._drop(data)
        elif self._reading is Reading.IDLE and self._is_answering:
            self._hold(data)
        else:
            self._feed(data)

    def begin_drain(self) -> None:
        """Close when idle; otherwise let the request under way finish, with `connection: close`."""
        for exchange in self._exchanges():
            exchange.keep_alive = False
        if not self._is_answering and self._reading is Reading.IDLE:
            self._reading = Reading.DEAF
            self.transport.close()

    def stop(self) -> None:
        """The drain ran out of time: requests not started are dropped, the one that runs is cancelled."""
        self.pipeline.clear()
        self._reading = Reading.DEAF
        if self.running is not None and not self.running.response_complete:
            self.running.stop()
        else:
            self.transport.close()

    def abort(self) -> None:
        """Reset the connection; requests under way learn that nobody waits for them."""
        self._lose_exchanges()
        self.transport.abort()

    @property
    def _is_answering(self) -> bool:
        return self.exchange is not None and not self.exchange.response_complete

    def _exchanges(self) -> list[Exchange]:
        queued = [cycle for cycle, _ in self.pipeline if isinstance(cycle, Exchange)]
        return queued if self.running is None else [self.running, *queued]

    def _lose_exchanges(self) -> None:
        exchanges = self._exchanges()
        self.pipeline.clear()
        for exchange in exchanges:
            exchange.mark_gone()

    # Reading

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > _HELD_LIMIT:
            self.flow.pause_reading()

    def _drop(self, data: bytes) -> None:
        if self._is_answering:  # a fault waits behind an answer: do not read on for nothing
            self._held_bytes += len(data)
            if self._held_bytes > _HELD_LIMIT:
                self.flow.pause_reading()

    def _feed(self, data: bytes) -> None:
        is_continued = self._reading is not Reading.IDLE
        self._begun_in_feed = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._replay_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            self._refuse(self._fault or _explain(error, data))
            return
        if self._reading is not Reading.IDLE:
            self._account(len(data), is_continued=is_continued)

    def _account(self, num_bytes: int, *, is_continued: bool) -> None:
        """A part is still incomplete after a read: start its clock, or count what it has cost by now."""
        if self._begun_in_feed:
            # Bytes of an earlier message in the same read are not this part's; a bounded undercount.
            starts_read = self._begun_in_feed == 1 and not is_continued
            self._wire_bytes = num_bytes if starts_read and self._reading is Reading.HEAD else 0
            self._since = self.edge.clock()
            self.edge.wheel.look_at(self, self._since + self._part_look_s())
        else:
            self._wire_bytes += num_bytes
        if self._reading is Reading.HEAD:
            if self._wire_bytes - len(self.url) > self.limits.max_header_bytes:
                self._refuse(HeadersTooLarge(f"{self.limits.max_header_bytes} bytes"))
        elif self._wire_bytes > self.limits.max_header_bytes + _FRAMING_PER_BODY_BYTE * self._body_bytes:
            self._refuse(MalformedRequest("the chunk framing outweighs the body"))

    def _part_look_s(self) -> float:
        return self.limits.header_timeout_s if self._reading is Reading.HEAD else _BODY_LOOK_S

    def _replay_upgrade(self, rest: bytes) -> None:
        """Serve a request that offers another protocol as plain HTTP/1.1: parse it again without the offer."""
        if self._fault is not None or self._replays_upgrade:
            self._refuse(self._fault or UpgradeNotServed())
            return
        head = head_without_upgrade(self.parser.get_method(), self.url, self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._reading = Reading.IDLE
        self._replays_upgrade = True
        self._feed(head + rest)
        self._replays_upgrade = False

    # Parser callbacks; what they raise ends in `_feed`

    def on_message_begin(self) -> None:
        """A request line begins."""
        if len(self.pipeline) >= self.limits.max_pipelined:
            raise self._faulty(MalformedRequest(f"more than {self.limits.max_pipelined} requests are pipelined"))
        self._reading = Reading.HEAD
        self._begun_in_feed += 1
        self.url = b""
        self.headers = []

    def on_url(self, url: bytes) -> None:
        """A piece of the request target."""
        self.url += url
        if len(self.url) > self.limits.max_uri_bytes:
            raise self._faulty(UriTooLong(self.limits.max_uri_bytes))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A complete header; those behind a chunked body (trailers) are counted and dropped."""
        if self._reading is Reading.HEAD:
            self.headers.append((name.lower(), value.rstrip(b" \t")))
            return
        self._num_trailers += 1
        if self._num_trailers > self.limits.max_header_fields:
            raise self._faulty(HeadersTooLarge(f"{self.limits.max_header_fields} trailer fields"))

    def on_headers_complete(self) -> None:
        """Judge the head and start, or queue, its exchange."""
        headers = self.headers
        if sum(len(name) + len(value) + 4 for name, value in headers) > self.limits.max_header_bytes:
            raise self._faulty(HeadersTooLarge(f"{self.limits.max_header_bytes} bytes"))
        version = self.parser.get_http_version()
        try:
            head = read_head(
                method=self.parser.get_method(),
                version=version,
                target=self.url,
                headers=headers,
                limits=self.limits,
            )
        except GatewayError as error:
            self._fault = error
            raise
        if self.parser.should_upgrade():
            if is_websocket(headers):
                raise self._faulty(UpgradeNotServed())
            return  # `_replay_upgrade` parses this request again
        exchange = Exchange(
            scope=self._scope(head, version),
            transport=self.transport,
            flow=self.flow,
            edge=self.edge,
            expects_continue=head.expects_continue,
            keep_alive=version == "1.1" and self.parser.should_keep_alive() and not self.edge.draining.is_set(),
            on_response=self.on_response_complete,
        )
        self._reading = Reading.BODY
        self._body_bytes = self._num_trailers = 0
        was_answering = self._is_answering
        self.exchange = self.cycle = exchange
        if was_answering:
            self.pipeline.appendleft((exchange, self.app))
        else:
            self._start(exchange)

    def _scope(self, head: RequestHead, version: str) -> HTTPScope:
        scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "method": head.method,
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "headers": self.headers,
            "state": {"draining": self.edge.draining},
        }
        return cast(HTTPScope, scope)

    def on_body(self, body: bytes) -> None:
        """A piece of the body: counted, then handed to whoever reads it."""
        exchange = self.exchange
        assert exchange is not None, "a body follows a head"
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.max_body_bytes:
            raise self._faulty(request_too_large(self.limits))
        if exchange.response_complete or exchange.disconnected:
            return
        exchange.body += body
        if len(exchange.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        exchange.message_event.set()

    def on_message_complete(self) -> None:
        """The request is read to its end."""
        if self._reading is Reading.HEAD:  # an upgrade offer, about to be replayed
            return
        self._reading = Reading.IDLE
        exchange = self.exchange
        assert exchange is not None, "a message has a head"
        exchange.more_body = False
        if exchange.response_complete:
            self._since = self.edge.clock()
        else:
            exchange.message_event.set()

    def _faulty(self, error: GatewayError) -> GatewayError:
        """Remember what a callback is about to raise: the parser reports only that one failed."""
        self._fault = error
        return error

    # Answering

    def _start(self, exchange: Exchange) -> None:
        self.running = exchange
        exchange.task = self.loop.create_task(exchange.run_asgi(self.app))
        self.tasks.add(exchange.task)
        exchange.task.add_done_callback(self.tasks.discard)

    def on_response_complete(self) -> None:
        """The running exchange is answered: go on with the next one, the next bytes, or the wait for them."""
        done = self.running
        assert done is not None, "only a running exchange completes"
        self.edge.total_requests += 1
        self._has_served = True
        if self.transport.is_closing():
            return
        if not done.keep_alive:
            self._close(is_input_pending=self._reading is not Reading.IDLE or bool(self.pipeline or self._held))
            return
        self.flow.resume_reading()
        if self.pipeline:
            exchange, _ = self.pipeline.pop()
            assert isinstance(exchange, Exchange)
            self._start(exchange)
        elif self._deferred is not None:
            self._send_refusal(self._deferred)
        elif self._reading is Reading.IDLE:
            self._since = self.edge.clock()
            if self._held:
                held, self._held, self._held_bytes = b"".join(self._held), [], 0
                self._feed(held)

    def _refuse(self, error: GatewayError) -> None:
        """Answer a fault in what is being read: at once, after earlier answers, or by closing when it is too late."""
        was_body = self._reading is Reading.BODY
        self._reading = Reading.DEAF
        faulty = self.exchange if was_body else None
        if faulty is not None and faulty is not self.running:
            self.pipeline.remove((faulty, self.app))
            self.exchange = self._exchanges()[-1]
            faulty = None
        if faulty is None:
            if self._is_answering:
                self._deferred = error
            else:
                self._send_refusal(error)
            return
        is_silent = not faulty.response_started
        faulty.mark_gone()
        if is_silent:
            self._send_refusal(error)
        else:
            self._close(is_input_pending=True)

    def _send_refusal(self, error: GatewayError) -> None:
        self.flow.write(self.edge.refuse(error))
        self._close(is_input_pending=True)

    def _close(self, *, is_input_pending: bool) -> None:
        """Close after what is queued was sent. Unread input would make the kernel reset the connection and the
        client lose the answer, so with input pending only our side is closed and theirs is read for a while."""
        self._reading = Reading.DEAF
        self.pipeline.clear()
        if not is_input_pending or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        self._since = self.edge.clock()
        self.edge.wheel.look_at(self, self._since + self.limits.linger_s)

    # Time

    def on_deadline(self, now: float) -> float | None:
        """Act on what is overdue; returns when to look again, or None when the connection is done with."""
        if self.flow.has_stalled(now, self.limits.write_stall_timeout_s):
            self.abort()
            return None
        stall_look = now + self.limits.write_stall_timeout_s / _STALL_LOOKS
        if self.transport.is_closing():
            return stall_look
        if self._reading is Reading.HEAD:
            return min(stall_look, self._check_head(now))
        if self._reading is Reading.BODY:
            return min(stall_look, self._check_body(now))
        if self._is_answering:
            return stall_look
        return min(self._check_quiet(now), max(stall_look, self._since))

    def _check_head(self, now: float) -> float:
        deadline = self._since + self.limits.header_timeout_s
        if now < deadline:
            return deadline
        self._refuse(RequestTimeout(f"The headers were not complete within {self.limits.header_timeout_s:g} s."))
        return now + self.limits.linger_s

    def _check_body(self, now: float) -> float:
        exchange = self.exchange
        assert exchange is not None, "a body follows a head"
        if self.flow.read_paused or exchange.waiting_for_100_continue:
            self._since = now  # it is us who keep the client waiting
            return now + _BODY_LOOK_S
        waited_s = now - self._since
        limits = self.limits
        if waited_s >= limits.body_timeout_s:
            self._refuse(RequestTimeout(f"The body was not complete within {limits.body_timeout_s:g} s."))
        elif waited_s >= limits.body_grace_s and self._body_bytes < waited_s * limits.body_min_bytes_per_s:
            self._refuse(RequestTimeout(f"The body came slower than {limits.body_min_bytes_per_s} bytes per second."))
        return now + _BODY_LOOK_S

    def _check_quiet(self, now: float) -> float:
        """Nothing is being read or answered: a wait for the first or the next request, or a lingering close."""
        if self._reading is Reading.DEAF:
            deadline = self._since + self.limits.linger_s
        elif self._has_served:
            deadline = self._since + self.limits.idle_keep_alive_s
        else:
            deadline = self._since + self.limits.header_timeout_s
        if now < deadline:
            return deadline
        if self._reading is Reading.DEAF:
            self.transport.abort()
        else:
            self._reading = Reading.DEAF
            self.transport.close()
        return now + self.limits.linger_s


def _explain(error: httptools.HttpParserError, data: bytes) -> GatewayError:
    if data.startswith(b"PRI * HTTP/2"):
        return MalformedRequest("HTTP/2 is not served on this port, use HTTP/1.1")
    if data.startswith(b"\x16\x03"):
        return MalformedRequest("TLS is not served on this port, use http://")
    return MalformedRequest(str(error.args[0]) if error.args else "not HTTP")

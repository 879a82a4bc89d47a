"""One client connection: uvicorn's httptools protocol with the limits, deadlines and strictness it does not have.

Reading is a small state machine (`MeterState`), answering a queue of exchanges of which the first runs. While a whole
request is being answered, later bytes are held back unparsed (a FIN behind them is still seen); and a fault found
behind unanswered requests is answered after them.

A half-closed connection (FIN from a client that waits for its answer) counts as gone: a proxy cannot distinguish it
from a client that left, and wasted generation costs more than refusing the few clients that half-close.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.errors import GatewayError
from gateway.http.exchange import Exchange, Outflow
from gateway.http.head import http_scope, read_head
from gateway.http.meter import InputMeter, MeterState
from gateway.http.refusal import (
    HeadersTooLarge,
    MalformedRequest,
    UpgradeNotServed,
    UriTooLong,
    explain_refusal,
    too_many_unfinished,
)
from gateway.http.upgrade import HTTP2_GOAWAY, HTTP2_PREFACE, head_without_upgrade, is_websocket

if TYPE_CHECKING:
    from gateway.http.state import EdgeState

_HELD_LIMIT = 64 * 1024
_STALL_CHECKS = 4


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
        self._meter = InputMeter(edge.limits, edge.clock())
        self._fault: GatewayError | None = None
        self._deferred: GatewayError | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._unread_bytes = 0
        """This connection's part of the listener's."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection in, or refuse it with one prepared write."""
        self.transport = transport
        super().connection_made(transport)
        now = self.edge.clock()
        self.flow = Outflow(transport, now)
        transport.set_write_buffer_limits(high=self.limits.connections.write_high_water_bytes)
        self._ip = self.client[0] if self.client else None
        self._is_admitted = self.edge.admit(self, self._ip)
        if not self._is_admitted:
            self._meter.reading = MeterState.DEAF
            self.flow.write(self.edge.refuse_connection())
            transport.close()
            return
        self.edge.idle[self] = None
        self.edge.wheel.look_at(self, now + self.limits.header.timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark the responses under way as unwanted."""
        self._release()
        self._meter.reading = MeterState.DEAF
        self._lose_exchanges()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """Treat a half-close as a client that left (see above); returning None closes the transport."""
        self._meter.reading = MeterState.DEAF
        self._lose_exchanges()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless these bytes must wait or are no longer of interest."""
        reading = self._meter.reading
        if reading is MeterState.IDLE and self._is_answering:
            self._hold(data)
        elif reading is not MeterState.DEAF:
            self._feed(data)

    def begin_leave(self) -> None:
        """Answer what is under way with `connection: close`."""
        for exchange in self._exchanges():
            exchange.keep_alive = False

    def begin_drain(self) -> None:
        """Close when idle; otherwise let the request under way finish."""
        self.begin_leave()
        if not self._is_answering and self._meter.reading is MeterState.IDLE:
            self._meter.reading = MeterState.DEAF
            self.transport.close()

    def stop(self) -> None:
        """Stop after a drain ran out of time: drop requests not started, cancel the one that runs."""
        self.pipeline.clear()
        self._meter.reading = MeterState.DEAF
        if self._is_answering and self.running is not None:
            self.running.stop()
        else:
            self.transport.close()

    def give_up(self) -> None:
        """Make room for another connection; only for one that is idle."""
        assert not self._is_answering, "a request is under way"
        self._release()
        self._meter.reading = MeterState.DEAF
        self.transport.close()

    @property
    def may_be_requesting(self) -> bool:
        """Return whether a request is being read or, on a new connection, on its way."""
        return self.exchange is None or self._meter.reading in (MeterState.HEAD, MeterState.BODY)

    @property
    def idle_since(self) -> float:
        """End of the last request, or start of the connection, while it is idle."""
        return self._meter.since

    def abort(self) -> None:
        """Reset the connection, and mark the responses under way as unwanted."""
        self._lose_exchanges()
        self.transport.abort()

    @property
    def _is_answering(self) -> bool:
        exchange = self.exchange
        return exchange is not None and not exchange.response_complete and not exchange.disconnected

    def _release(self) -> None:
        self._count_unread(0)
        if self._is_admitted:
            self._is_admitted = False
            self.edge.release(self, self._ip)

    def _begin_wait(self) -> None:
        self._meter.begin_wait(self.edge.clock())
        self.edge.idle[self] = None

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
        if not self._count_unread(self._held_bytes):
            # The application may never read it: the connection ends behind the answer, and the client retries.
            self._held, self._held_bytes = [], 0
            self._count_unread(0)
            self._meter.reading = MeterState.DEAF
            self.begin_leave()
        elif self._held_bytes > _HELD_LIMIT:
            self.flow.pause_reading()

    def _count_unread(self, num_bytes: int) -> bool:
        """Report the bytes that this connection holds to the listener; return False when there is no room for them."""
        edge, more = self.edge, num_bytes - self._unread_bytes
        edge.unread_bytes += more
        self._unread_bytes = num_bytes
        return more <= 0 or edge.unread_bytes <= edge.max_unread_bytes

    def _feed(self, data: bytes) -> None:
        meter = self._meter
        meter.begin_read(len(data))
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._replay_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            if data.startswith(HTTP2_PREFACE) and self.exchange is None:
                self._go_away()
            else:
                self._refuse(self._fault or explain_refusal(str(error), data))
            return
        if meter.reading is not MeterState.IDLE:
            now = self.edge.clock()
            fault = meter.end_read(now, target_bytes=len(self.url))
            if fault is None and not self._count_unread(meter.head_bytes):
                fault = too_many_unfinished()
            if fault is not None:
                self._refuse(fault)
            else:
                self.edge.wheel.look_at(self, meter.next_look(now))

    def _go_away(self) -> None:
        """End a connection that begins as HTTP/2, in that protocol's own frames."""
        self._meter.reading = MeterState.DEAF
        self._count_unread(0)
        self.edge.note_http2()
        self.flow.write(HTTP2_GOAWAY)
        self._close(is_input_pending=True)

    def _replay_upgrade(self, rest: bytes) -> None:
        """Serve a request that offers another protocol as plain HTTP/1.1: parse it again without the offer."""
        head = head_without_upgrade(self.parser.get_method(), self.url, self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._meter.reading = MeterState.IDLE
        self._feed(head + rest)

    # Parser callbacks; what they raise ends in `_feed`

    def on_message_begin(self) -> None:
        """Begin a request line."""
        if len(self.pipeline) >= self.limits.connections.max_pipelined:
            raise self._faulty(
                MalformedRequest(f"more than {self.limits.connections.max_pipelined} requests are pipelined")
            )
        self._meter.begin_head()
        self.edge.idle.pop(self, None)
        self.url = b""
        self.headers = []

    def on_url(self, url: bytes) -> None:
        """Add a piece of the request target."""
        self.url += url
        if len(self.url) > self.limits.header.max_uri_bytes:
            raise self._faulty(UriTooLong(self.limits.header.max_uri_bytes))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a complete header; those behind a chunked body (trailers) are counted and dropped."""
        if self._meter.reading is MeterState.HEAD:
            self.headers.append((name.lower(), value.rstrip(b" \t")))
            return
        fault = self._meter.count_trailer()
        if fault is not None:
            raise self._faulty(fault)

    def on_headers_complete(self) -> None:
        """Check the head and start, or queue, its exchange."""
        headers = self.headers
        if self._unread_bytes:
            self._count_unread(0)
        if self._meter.may_exceed_head():
            num_bytes = sum(len(name) + len(value) + 4 for name, value in headers)
            if num_bytes > self.limits.header.max_bytes:
                raise self._faulty(HeadersTooLarge(f"{self.limits.header.max_bytes} bytes"))
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
            scope=http_scope(
                head,
                version=version,
                headers=headers,
                server=self.server,
                client=self.client,
                scheme=self.scheme or "http",
                draining=self.edge.draining,
            ),
            transport=self.transport,
            flow=self.flow,
            edge=self.edge,
            expects_continue=head.expects_continue,
            keep_alive=version == "1.1" and self.parser.should_keep_alive() and not self.edge.leaving.is_set(),
            on_response=self.on_response_complete,
        )
        self._meter.begin_body()
        was_answering = self._is_answering
        self.exchange = self.cycle = exchange
        if was_answering:
            self.pipeline.appendleft((exchange, self.app))
        else:
            self._start(exchange)

    def on_body(self, body: bytes) -> None:
        """Count a piece of the body, then pass it to its reader."""
        exchange = self.exchange
        assert exchange is not None, "a body follows a head"
        fault = self._meter.count_body(len(body))
        if fault is not None:
            raise self._faulty(fault)
        if exchange.response_complete or exchange.disconnected:
            return
        exchange.body += body
        if len(exchange.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        exchange.message_event.set()

    def on_message_complete(self) -> None:
        """End the reading of the request."""
        if self._meter.reading is MeterState.HEAD:  # an upgrade offer, about to be replayed
            return
        self._meter.reading = MeterState.IDLE
        exchange = self.exchange
        assert exchange is not None, "a message has a head"
        exchange.more_body = False
        if exchange.response_complete:
            self._begin_wait()
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
        """Continue after a response with the next exchange, the next bytes, or the wait for them."""
        done = self.running
        assert done is not None, "only a running exchange completes"
        self.edge.total_requests += 1
        if self.transport.is_closing():
            return
        if not done.keep_alive:
            self._close(
                is_input_pending=self._meter.reading is not MeterState.IDLE or bool(self.pipeline or self._held)
            )
            return
        self.flow.resume_reading()
        if self.pipeline:
            exchange, _ = self.pipeline.pop()
            assert isinstance(exchange, Exchange)
            self._start(exchange)
        elif self._deferred is not None:
            self._send_refusal(self._deferred)
        elif self._meter.reading is MeterState.IDLE:
            self._begin_wait()
            if self._held:
                held, self._held, self._held_bytes = b"".join(self._held), [], 0
                self._count_unread(0)
                self._feed(held)

    def _refuse(self, error: GatewayError) -> None:
        """Answer a fault in what is being read: at once, after earlier answers, or by closing when it is too late."""
        was_body = self._meter.reading is MeterState.BODY
        self._meter.reading = MeterState.DEAF
        self.headers = []
        self._count_unread(0)
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
        is_silent = not faulty.is_on_wire
        faulty.mark_gone()
        if is_silent:
            self._send_refusal(error)
        else:
            self._close(is_input_pending=True)

    def _send_refusal(self, error: GatewayError) -> None:
        self.flow.write(self.edge.refuse(error, self.url))
        self._close(is_input_pending=True)

    def _close(self, *, is_input_pending: bool) -> None:
        """Close after all queued bytes were sent.

        Unread input would make the kernel reset the connection, and the client would lose the answer. So with input
        pending only our side is closed, and input is read for a while.
        """
        self._meter.reading = MeterState.DEAF
        self.pipeline.clear()
        if not is_input_pending or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        now = self.edge.clock()
        self._meter.begin_linger(now)
        self.edge.wheel.look_at(self, now + self.limits.connections.linger_s)

    # Time

    def on_deadline(self, now: float) -> float | None:
        """Act on what is overdue; returns the time of the next check, or None when the connection is done with."""
        if self.flow.has_stalled(now, self.limits.connections.write_stall_timeout_s):
            self.abort()
            return None
        stall_look = now + self.limits.connections.write_stall_timeout_s / _STALL_CHECKS
        if self.transport.is_closing():
            return stall_look
        if self._meter.reading in (MeterState.HEAD, MeterState.BODY):
            fault = self._meter.overdue(now, is_held_up=self._is_held_up)
            if fault is not None:
                self._refuse(fault)
                return now + self.limits.connections.linger_s
            return min(stall_look, self._meter.next_look(now))
        if self._is_answering:
            return stall_look
        deadline = self._meter.idle_deadline()
        if now < deadline:
            return min(stall_look, deadline)
        if self._meter.reading is MeterState.DEAF:
            self.transport.abort()
            return None
        self._meter.reading = MeterState.DEAF
        self.transport.close()
        return stall_look

    @property
    def _is_held_up(self) -> bool:
        """True while the server itself stops the client from sending its body."""
        return self.flow.read_paused or (self.exchange is not None and self.exchange.waiting_for_100_continue)

"""Connection: one HTTP/1.1 connection to an upstream, with one request at a time, its deadlines and its end.

A connection is idle (no response attached) or busy (exactly one). `send` makes it busy. The last byte of the response
makes it idle again and calls the owner's `released`. Anything else that ends an exchange ends the connection too: a
deadline, a protocol error, the peer, the caller. The owner's `lost` is then called once, at the same instant, and the
transport is aborted. In this way a cancellation reaches the engine.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from math import inf
from typing import Protocol, cast

from gateway.upstreams.http1.errors import ClosedEarly, ExchangePhase, HeadTooLarge, ProtocolError, UpstreamError
from gateway.upstreams.http1.pulse import Pulse
from gateway.upstreams.http1.reader import ResponseReader, WireError, WireHeadTooLarge, WireLimits
from gateway.upstreams.http1.request import Deadlines, ExchangeTimeouts
from gateway.upstreams.http1.response import UpstreamResponse
from gateway.util.time_limit import MAX_GRACE_S

Clock = Callable[[], float]

_SECOND_LOOK_S = 0.001
_SERVER_ERROR = 500
_REQUEST_TIMEOUT = 408


class ConnectionOwner(Protocol):
    """Pool that tracks the state of its connections."""

    def released(self, connection: Connection) -> None:
        """Take back a connection whose response is whole; it may carry another request."""

    def lost(self, connection: Connection) -> None:
        """Remove a connection that carries no more requests."""

    def closed(self, connection: Connection) -> None:
        """Remove a connection whose socket is closed."""


class Connection(asyncio.Protocol):
    """Protocol of one socket; `send` starts an exchange, and the owner is notified of its end."""

    __slots__ = (
        "_clock",
        "_deadlines",
        "_is_lost",
        "_is_suspect",
        "_loop",
        "_max_buffer_bytes",
        "_name",
        "_owner",
        "_pulse",
        "_reader",
        "_response",
        "_timer",
        "_timer_at",
        "_transport",
        "connected_at",
        "idle_since",
        "num_requests",
    )

    def __init__(
        self,
        owner: ConnectionOwner,
        *,
        name: str,
        clock: Clock,
        wire_limits: WireLimits,
        max_buffer_bytes: int,
        loop: asyncio.AbstractEventLoop,
        pulse: Pulse,
    ) -> None:
        self._owner = owner
        self._name = name
        self._clock = clock
        self._loop = loop
        self._pulse = pulse
        self._max_buffer_bytes = max_buffer_bytes
        self._reader = ResponseReader(wire_limits)
        self._transport: asyncio.Transport | None = None
        self._response: UpstreamResponse | None = None
        self._deadlines: Deadlines | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._is_lost = False
        self._is_suspect = False
        self.num_requests = 0
        self.connected_at = self.idle_since = clock()

    @property
    def is_open(self) -> bool:
        """True if the connection can still carry bytes, as far as observed."""
        return self._transport is not None and not self._is_lost

    @property
    def is_idle(self) -> bool:
        """True if open and without a request."""
        return self.is_open and self._response is None

    def __repr__(self) -> str:
        state = "idle" if self.is_idle else "busy" if self.is_open else "closed"
        return f"<Connection {self._name} {state}, {self.num_requests} requests>"

    def send(
        self,
        head: bytes,
        body: bytes,
        *,
        method: bytes,
        timeouts: ExchangeTimeouts,
        started_at: float,
        connect_s: float | None,
    ) -> UpstreamResponse:
        """Write one request and return its pending response.

        Args:
            head: The encoded head.
            body: The body.
            method: The method, on which the framing of the response depends.
            timeouts: Time limits of the exchange.
            started_at: Loop time at which the exchange began.
            connect_s: Seconds spent on connecting; None for a reused connection.
        """
        assert self._response is None, "a connection carries one request at a time"
        assert self._transport is not None
        assert not self._is_lost
        self.num_requests += 1
        self._reader.begin(method)
        response = self._response = UpstreamResponse(
            self, self._loop, connect_s=connect_s, max_buffer_bytes=self._max_buffer_bytes
        )
        self._is_suspect = False
        self._deadlines = Deadlines(timeouts, started_at=started_at, written_at=self._loop.time())
        self._watch()
        if len(body) <= 65_536:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))  # no copy of a large body
        return response

    def discard(self) -> None:
        """Drop a connection that its owner never received; loops need not report the loss of a cancelled one."""
        self._is_lost = True
        if self._transport is not None:
            self._transport.abort()
        else:
            self._reader.close()

    def close(self) -> None:
        """Close gracefully; for a connection without a response. Idempotent."""
        self._lose()
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size():
            self._transport.abort()  # a graceful close would wait for a peer that does not read
        else:
            self._transport.close()

    def abort(self, error: UpstreamError) -> None:
        """Close at once; a response in progress fails with `error`. Idempotent."""
        self._lose()
        if self._transport is not None:
            self._transport.abort()
        response, self._response = self._response, None
        if response is not None:
            response.on_error(error)

    # Calls by the response.

    def pause(self) -> None:
        """Stop reading; the inter-chunk deadline is suspended meanwhile."""
        if self.is_open and self._transport is not None and self._deadlines is not None:
            self._transport.pause_reading()
            self._deadlines.suspend()

    def resume(self) -> None:
        """Resume reading."""
        if self.is_open and self._transport is not None and self._deadlines is not None:
            self._deadlines.restart(self._loop.time())
            self._watch()
            self._transport.resume_reading()

    def abandon(self) -> None:
        """Close at once, because the response is no longer needed."""
        self._response = None
        self._lose()
        if self._transport is not None:
            self._transport.abort()

    def distrust(self) -> None:
        """Close the connection; a request that it carries by now fails as if the upstream had closed it."""
        if self._response is None:
            self.close()
            return
        self.abort(
            ClosedEarly(
                f"{self._name}: an earlier response on the connection did not belong to its request",
                phase=self._phase(),
                response_started=self._reader.started,
            )
        )

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Adopt the transport after connecting and any handshake."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from asyncio's
        if self._is_lost:  # the caller was cancelled in the meantime
            self._transport.abort()
            return
        raw_socket = transport.get_extra_info("socket")
        if raw_socket is not None and raw_socket.family in (socket.AF_INET, socket.AF_INET6):
            raw_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connected_at = self.idle_since = self._clock()

    def data_received(self, data: bytes) -> None:
        """Parse, deliver pieces, and release or drop the connection at the end."""
        response = self._response
        if response is None:
            if not self._is_lost:  # bytes without a request: later responses could not be matched
                self.close()
            return
        if response.first_byte_at is None:
            response.first_byte_at = self._clock()
        reader = self._reader
        fault: WireError | None = None
        try:
            reader.feed(data)
        except WireError as error:
            fault = error
        if fault is not None and not response.status:
            self._fail_protocol(fault)  # a bad head, or a good one with junk behind it: none of it is delivered
            return
        try:
            self._deliver(response)
        except Exception as error:  # the sink's own error is raised from the relay
            self._fail(error)
            return
        if fault is not None:
            self._fail_protocol(fault)
        elif reader.is_complete and self._response is response:
            self._finish(response)

    def eof_received(self) -> bool:
        """End the connection, because the peer sends no more."""
        self._end_by_peer(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the closed socket to the owner."""
        self._end_by_peer(exc)
        self._reader.close()
        self._transport = None
        self._owner.closed(self)

    def _deliver(self, response: UpstreamResponse) -> None:
        """Deliver the head once, and the body; one read is one piece, however it was chunked."""
        reader = self._reader
        if not response.status and reader.has_head:
            response.on_head(reader.status, reader.headers)
        pieces = reader.pieces
        if not pieces:
            return
        reader.pieces = []
        has_progress = response.on_piece(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if not has_progress or reader.is_complete or self._deadlines is None:
            return
        now = self._pulse.at = self._loop.time()
        if self._deadlines.progress(now) < self._timer_at:
            self._watch()

    def _finish(self, response: UpstreamResponse) -> None:
        assert self._transport is not None
        reader = self._reader
        # A server that fails may still be writing about an earlier request; what follows could reach the wrong client.
        is_sound = reader.status < _SERVER_ERROR and reader.status != _REQUEST_TIMEOUT
        can_reuse = is_sound and reader.keep_alive and not self._is_lost and not self._transport.get_write_buffer_size()
        response.resume()  # a paused transport must not go back to the pool
        self._response = None
        self._deadlines = None
        response.on_end()
        if can_reuse:
            self.idle_since = self._clock()
            self._owner.released(self)
        else:
            self.close()

    def _end_by_peer(self, cause: Exception | None) -> None:
        response = self._response
        if response is None:
            self._lose()
            return
        if cause is None and self._reader.eof():
            self._lose()
            self._finish(response)
            return
        reason = "reset" if cause is not None else "closed"
        error = ClosedEarly(
            f"{self._name}: the upstream {reason} the connection before the response was whole",
            phase=self._phase(),
            response_started=self._reader.started,
        )
        error.__cause__ = cause
        self.abort(error)

    def _fail_protocol(self, fault: WireError) -> None:
        kind = HeadTooLarge if isinstance(fault, WireHeadTooLarge) else ProtocolError
        error = kind(f"{self._name}: {fault}", phase=self._phase(), response_started=True)
        error.__cause__ = fault
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        response = self._response
        self.abandon()
        if response is not None:
            response.on_error(error)

    def _phase(self) -> ExchangePhase:
        return ExchangePhase.BODY if self._response is not None and self._response.status else ExchangePhase.HEAD

    def _lose(self) -> None:
        """Report to the owner, once, that this connection is out of use."""
        if self._is_lost:
            return
        self._is_lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, inf
        if self._transport is not None:
            self._owner.lost(self)

    # One timer for all deadlines: armed for the earliest, it checks again when it fires, so a piece costs no timer.

    def _watch(self) -> None:
        assert self._deadlines is not None
        at = self._deadlines.next_at
        if at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        now = self._loop.time()
        late_s = now - self._timer_at
        self._timer, self._timer_at = None, inf
        if self._response is None or self._deadlines is None:
            return
        kind = self._deadlines.expired(now)
        if kind is None:
            self._is_suspect = False
            self._watch()
        elif not self._is_suspect:
            # The loop may have been late, or the whole machine: the upstream gets that time before a second check.
            self._is_suspect = True
            self._timer_at = now + min(max(late_s, _SECOND_LOOK_S), MAX_GRACE_S)
            self._timer = self._loop.call_at(self._timer_at, self._on_timer)
        else:
            message = f"{self._name}: {kind.__name__} while waiting for the response"
            self._fail(kind(message, phase=self._phase(), response_started=self._reader.started))

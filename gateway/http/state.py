"""State that all connections of one listener share: limits, counts, clock and wheel of deadlines."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Protocol

from uvicorn.server import ServerState

from gateway.errors import GatewayError
from gateway.http.limits import EdgeLimits
from gateway.http.refusal import MalformedRequest, render_refusal, too_many_connections
from gateway.http.wheel import DeadlineWheel

if TYPE_CHECKING:
    from gateway.http.protocol import EdgeProtocol

_LOGGER = logging.getLogger("penstock.edge")
MAX_UNREAD_BYTES = 64 * 1024 * 1024
_MIN_IDLE_S = 1.0  # a younger one may have its next request on the wire
_MAX_DUE_PER_TICK = 1000  # about a millisecond's work

RefusalHook = Callable[[str, GatewayError], None]
Envelope = Callable[[bytes, GatewayError, str], bytes | None]
"""Callback with the listener's name and the error of each answer that the edge gives by itself."""


def date_line() -> bytes:
    """Return the header line with the current time."""
    return b"date: %b\r\n" % formatdate(usegmt=True).encode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownEvents:
    """Events that mark how far the shutdown of a server's listeners has come."""

    leaving: asyncio.Event
    draining: asyncio.Event


class AddressCounts(Protocol):
    """Open connections by client address."""

    def enter(self, address: str, most: int) -> bool:
        """Count one more connection; False when the address has `most`."""
        ...

    def leave(self, address: str) -> None:
        """Uncount a connection that `enter` has counted."""
        ...


class OwnAddresses:
    """Open connections of one process by client address."""

    def __init__(self) -> None:
        self._num: Counter[str] = Counter()

    def enter(self, address: str, most: int) -> bool:
        """Count one more connection; False when the address has `most`."""
        if self._num[address] >= most:
            return False
        self._num[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Uncount a connection that `enter` has counted."""
        self._num[address] -= 1
        if self._num[address] <= 0:
            del self._num[address]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeHooks:
    """Callbacks of the edge for a request that it refuses itself."""

    new_request_id: Callable[[], str]
    on_refusal: RefusalHook
    envelope: Envelope | None = None
    """Callback for the body of a refusal of a request to this target; it returns None for the usual envelope."""
    addresses: AddressCounts | None = None
    """Connections by client address, where other processes have a part of them; None for counts of its own."""


class EdgeState(ServerState):
    """One listener's shared state. `leaving` and `draining` are shared by all listeners of a server."""

    def __init__(
        self,
        *,
        name: str,
        limits: EdgeLimits,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        resolution_s: float,
        shutdown: ShutdownEvents,
        hooks: EdgeHooks,
        max_unread_bytes: int = MAX_UNREAD_BYTES,
    ) -> None:
        super().__init__()
        self.name = name
        self.limits = limits
        self.max_connections = limits.connections.max_total
        self.loop = loop
        self.clock = clock
        self.leaving = shutdown.leaving
        self.draining = shutdown.draining
        self.new_request_id = hooks.new_request_id
        self.on_refusal = hooks.on_refusal
        self._envelope = hooks.envelope
        self.max_unread_bytes = max_unread_bytes
        self._has_met_http2 = False
        self.unread_bytes = 0
        """Bytes that clients have sent too early (behind a request that is being answered) or of unfinished heads."""
        self.date_line = date_line()
        self.open: set[EdgeProtocol] = set()
        self.wheel: DeadlineWheel[EdgeProtocol] = DeadlineWheel(resolution_s=resolution_s, now=clock())
        self._addresses = hooks.addresses or OwnAddresses()
        self.idle: OrderedDict[EdgeProtocol, None] = OrderedDict()
        """Connections on which nothing is under way, the longest idle one first."""

    def admit(self, connection: EdgeProtocol, ip: str | None) -> bool:
        """Count a connection in; False when the listener, or its IP, has as many as it may.

        A full listener gives up the connection that has been idle longest: its client can come back, a client that
        is refused a connection has lost its request.
        """
        if len(self.open) >= self.max_connections and not self._close_longest_idle():
            return False
        most = self.limits.connections.max_per_ip
        if ip is not None and most and not self._addresses.enter(ip, most):
            return False
        self.open.add(connection)
        return True

    def release(self, connection: EdgeProtocol, ip: str | None) -> None:
        """Count a connection out that `admit` had counted in."""
        self.open.discard(connection)
        self.idle.pop(connection, None)
        self.wheel.discard(connection)
        if ip is not None and self.limits.connections.max_per_ip:
            self._addresses.leave(ip)

    def _close_longest_idle(self) -> bool:
        longest = next(iter(self.idle), None)
        if longest is None or self.clock() - longest.idle_since < _MIN_IDLE_S:
            return False
        longest.give_up()
        return True

    def refuse(self, error: GatewayError, target: bytes = b"") -> bytes:
        """Return the bytes of the edge's own answer to a request for `target`, and count it."""
        self.on_refusal(self.name, error)
        request_id = self.new_request_id()
        body = None if self._envelope is None else self._envelope(target, error, request_id)
        return render_refusal(error, request_id=request_id, date_line=self.date_line, body=body)

    def refuse_connection(self) -> bytes:
        """Return the bytes for a connection that was not admitted."""
        return self.refuse(too_many_connections())

    def note_http2(self) -> None:
        """Count a connection that begins as HTTP/2; the first one is logged."""
        self.on_refusal(self.name, MalformedRequest("HTTP/2 is not served on this port"))
        if not self._has_met_http2:
            self._has_met_http2 = True
            _LOGGER.warning(
                "listener %s: a client speaks HTTP/2, which is not served; let it use HTTP/1.1. Logged once.", self.name
            )

    def sweep(self, now: float) -> None:
        """Check the connections whose time has come."""
        for connection in self.wheel.due(now, limit=_MAX_DUE_PER_TICK):
            next_look = connection.on_deadline(now)
            if next_look is not None:
                self.wheel.look_at(connection, next_look)

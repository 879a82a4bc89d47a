"""The cost of the part of a request that a client is sending: bytes and time, measured without acting on it."""

from __future__ import annotations

from enum import Enum, auto

from gateway.errors import GatewayError
from gateway.http.head import request_too_large
from gateway.http.limits import EdgeLimits
from gateway.http.refusal import HeadersTooLarge, MalformedRequest, RequestTimeout

_BODY_LOOK_S = 1.0
_FRAMING_PER_BODY_BYTE = 8


class MeterState(Enum):
    """The part of a connection's input that the next byte from the client belongs to."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    DEAF = auto()  # nothing: the connection is being closed, bytes are dropped


class InputMeter:
    """Follows one connection's input. Verdicts are errors to answer with, or None; `now` comes from the caller.

    The clock is read only when a read ended inside a part, so a request that arrives whole costs no clock read.
    """

    __slots__ = (
        "_body_bytes",
        "_has_served",
        "_limits",
        "_num_trailers",
        "_part",
        "_part_before",
        "_read_bytes",
        "_since",
        "_was_idle",
        "_wire_bytes",
        "reading",
    )

    def __init__(self, limits: EdgeLimits, now: float) -> None:
        self.reading = MeterState.IDLE
        self._since = now  # when the part being read, or the wait for the next request, began
        self._has_served = False
        self._limits = limits
        self._part = self._part_before = 0  # numbers heads and bodies; the latter as of the start of the read
        self._was_idle = True
        self._read_bytes = 0
        self._wire_bytes: int | None = 0  # of the part, chunk framing included; None: it began in mid-read
        self._body_bytes = 0
        self._num_trailers = 0

    def begin_read(self, num_bytes: int) -> None:
        """Start a read: bytes arrived and are about to be parsed."""
        self._read_bytes = num_bytes
        self._part_before = self._part
        self._was_idle = self.reading is MeterState.IDLE

    def begin_head(self) -> None:
        """Start a request line."""
        self.reading = MeterState.HEAD
        self._part += 1
        self._wire_bytes = 0

    def begin_body(self) -> None:
        """Start the body, once a head is complete and passed."""
        self.reading = MeterState.BODY
        self._part += 1
        self._wire_bytes = self._body_bytes = self._num_trailers = 0

    @property
    def head_bytes(self) -> int:
        """Approximate bytes of an unfinished head that are here; 0 when none is being read."""
        if self.reading is not MeterState.HEAD:
            return 0
        return self._read_bytes if self._wire_bytes is None else self._wire_bytes

    @property
    def since(self) -> float:
        """Start of the part being read, or of the wait for the next request."""
        return self._since

    def begin_wait(self, now: float) -> None:
        """Start the wait for the next request, once one is read and answered."""
        self._since = now
        self._has_served = True

    def begin_linger(self, now: float) -> None:
        """Start the linger: our side of the connection is closed, and input is dropped for a while."""
        self.reading = MeterState.DEAF
        self._since = now

    def may_exceed_head(self) -> bool:
        """Return False when the head that just ended is surely small enough, so that counting it is needless."""
        return self._wire_bytes is None or self._wire_bytes + self._read_bytes > self._limits.header.max_bytes

    def count_body(self, num_bytes: int) -> GatewayError | None:
        """Count a piece of the body; return the error when the body is too large."""
        self._body_bytes += num_bytes
        return request_too_large(self._limits) if self._body_bytes > self._limits.body.max_bytes else None

    def count_trailer(self) -> GatewayError | None:
        """Count a field behind a chunked body; return the error when there are too many."""
        self._num_trailers += 1
        limit = self._limits.header.max_fields
        return HeadersTooLarge(f"{limit} trailer fields") if self._num_trailers > limit else None

    def end_read(self, now: float, *, target_bytes: int) -> GatewayError | None:
        """End a read inside a part: start the part's clock when it is new, count its bytes when it is not."""
        if self._part == self._part_before:
            if self._wire_bytes is not None:
                self._wire_bytes += self._read_bytes
            else:
                self._wire_bytes = self._read_bytes
        else:
            self._since = now
            is_whole_read = self._was_idle and self._part == self._part_before + 1
            self._wire_bytes = self._read_bytes if is_whole_read else None
        wire_bytes = self._wire_bytes or 0
        if self.reading is MeterState.HEAD:
            too_large = wire_bytes - target_bytes > self._limits.header.max_bytes
            return HeadersTooLarge(f"{self._limits.header.max_bytes} bytes") if too_large else None
        if wire_bytes > self._limits.header.max_bytes + _FRAMING_PER_BODY_BYTE * self._body_bytes:
            return MalformedRequest("the chunk framing outweighs the body")
        return None

    def next_look(self, now: float) -> float:
        """Return the next time at which `overdue` should be called while a part is being read."""
        if self.reading is MeterState.HEAD:
            return self._since + self._limits.header.timeout_s
        return now + _BODY_LOOK_S

    def overdue(self, now: float, *, is_held_up: bool) -> GatewayError | None:
        """Return the error for a part that comes too slowly; `is_held_up`: the server makes the client wait."""
        limits = self._limits
        if self.reading is MeterState.HEAD:
            if now < self._since + limits.header.timeout_s:
                return None
            return RequestTimeout(f"The headers were not complete within {limits.header.timeout_s:g} s.")
        if is_held_up:
            self._since = now
        waited_s = now - self._since
        if waited_s >= limits.body.timeout_s:
            return RequestTimeout(f"The body was not complete within {limits.body.timeout_s:g} s.")
        if waited_s >= limits.body.grace_s and self._body_bytes < waited_s * limits.body.min_bytes_per_s:
            return RequestTimeout(f"The body came slower than {limits.body.min_bytes_per_s} bytes per second.")
        return None

    def idle_deadline(self) -> float:
        """Return the time at which a connection is closed on which nothing is read or answered.

        The first request must come sooner than the next one. Input after a refusal is read only for a moment.
        """
        limits = self._limits
        if self.reading is MeterState.DEAF:
            return self._since + limits.connections.linger_s
        return self._since + (limits.connections.idle_keep_alive_s if self._has_served else limits.header.timeout_s)

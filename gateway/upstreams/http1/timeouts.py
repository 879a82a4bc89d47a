"""Time limits of one exchange, as values, and the deadlines that follow from them."""

from __future__ import annotations

from math import inf

import msgspec

from gateway.upstreams.http1.errors import FirstByteTimeout, InterChunkTimeout, TotalTimeout, UpstreamTimeout


class ExchangeTimeouts(msgspec.Struct, frozen=True, gc=False):
    """Limits in seconds; None disables one."""

    connect_s: float | None = None
    """Seconds for name lookup, TCP and TLS together."""
    first_byte_s: float | None = None
    """Seconds from writing the request to the first piece of the body, or to the end of an empty one."""
    inter_chunk_s: float | None = None
    """Seconds between two pieces of the body, while reading is not paused."""
    total_s: float | None = None
    """Seconds from `send` to the last byte."""

    def __post_init__(self) -> None:
        # Written out for speed: every request of a client with a timeout makes one.
        if not (
            (self.connect_s is None or self.connect_s > 0)
            and (self.first_byte_s is None or self.first_byte_s > 0)
            and (self.inter_chunk_s is None or self.inter_chunk_s > 0)
            and (self.total_s is None or self.total_s > 0)
        ):
            raise ValueError(f"expected positive numbers or None, got {self!r}")


class Deadlines:
    """Deadlines of one exchange. Pure: the time is passed in, and there is no timer.

    One instant belongs to the phase (first byte, then each gap) and one to the whole. A piece of the body only moves
    the former, so the watching timer may sleep until the earlier of both and check again then.
    """

    __slots__ = ("_has_progress", "_is_suspended", "_phase_at", "_timeouts", "_total_at")

    def __init__(self, timeouts: ExchangeTimeouts, *, started_at: float, written_at: float) -> None:
        self._timeouts = timeouts
        self._phase_at = inf if timeouts.first_byte_s is None else written_at + timeouts.first_byte_s
        self._total_at = inf if timeouts.total_s is None else started_at + timeouts.total_s
        self._has_progress = False
        self._is_suspended = False

    @property
    def next_at(self) -> float:
        """Earliest instant at which a limit can pass; infinite for never."""
        phase_at = inf if self._is_suspended else self._phase_at
        return phase_at if phase_at < self._total_at else self._total_at

    def progress(self, now: float) -> float:
        """Record a piece of the body; return the deadline of the next one."""
        self._has_progress = True
        gap_s = self._timeouts.inter_chunk_s
        at = self._phase_at = inf if gap_s is None else now + gap_s
        return at

    def suspend(self) -> None:
        """Suspend the phase's deadline while reading is paused."""
        self._is_suspended = True

    def restart(self, now: float) -> None:
        """Resume the phase's deadline; a gap in progress starts over."""
        self._is_suspended = False
        if self._has_progress:
            self.progress(now)

    def expired(self, now: float) -> type[UpstreamTimeout] | None:
        """Return the error of the limit that has passed, or None."""
        if now >= self._total_at:
            return TotalTimeout
        if self._is_suspended or now < self._phase_at:
            return None
        return InterChunkTimeout if self._has_progress else FirstByteTimeout

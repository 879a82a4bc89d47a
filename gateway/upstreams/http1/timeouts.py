"""The time limits of one exchange, as values, and the deadlines they become."""

from __future__ import annotations

from math import inf

import msgspec

from gateway.upstreams.http1.errors import FirstByteTimeout, InterChunkTimeout, TotalTimeout, UpstreamTimeout


class ExchangeTimeouts(msgspec.Struct, frozen=True, gc=False):
    """Limits in seconds; None switches one off."""

    connect_s: float | None = None
    """Name lookup, TCP and TLS together."""
    first_byte_s: float | None = None
    """From the moment the request is written to the first piece of the body (or the end, if it has none)."""
    inter_chunk_s: float | None = None
    """Between two pieces of the body, while we are reading."""
    total_s: float | None = None
    """From `send` to the last byte."""

    def __post_init__(self) -> None:
        # Written out, for one is made for every request of a client with a timeout.
        if not (
            (self.connect_s is None or self.connect_s > 0)
            and (self.first_byte_s is None or self.first_byte_s > 0)
            and (self.inter_chunk_s is None or self.inter_chunk_s > 0)
            and (self.total_s is None or self.total_s > 0)
        ):
            raise ValueError(f"expected positive numbers or None, got {self!r}")


class Deadlines:
    """The instants at which one exchange becomes too late. Pure: it is told the time, it holds no timer.

    One instant belongs to the phase (first byte, then each gap) and one to the whole. A piece of the body only
    moves the former, so the timer that watches may sleep until the earlier of both and look again then.
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
        """The earliest instant at which something could be late; inf for never."""
        phase_at = inf if self._is_suspended else self._phase_at
        return phase_at if phase_at < self._total_at else self._total_at

    def progress(self, now: float) -> float:
        """A piece of the body came; returns the instant at which the next one is late."""
        self._has_progress = True
        gap_s = self._timeouts.inter_chunk_s
        at = self._phase_at = inf if gap_s is None else now + gap_s
        return at

    def suspend(self) -> None:
        """We stopped reading ourselves: silence is no longer the upstream's fault."""
        self._is_suspended = True

    def restart(self, now: float) -> None:
        """We read again; a gap in progress starts over."""
        self._is_suspended = False
        if self._has_progress:
            self.progress(now)

    def expired(self, now: float) -> type[UpstreamTimeout] | None:
        """Which limit has passed, if any."""
        if now >= self._total_at:
            return TotalTimeout
        if self._is_suspended or now < self._phase_at:
            return None
        return InterChunkTimeout if self._has_progress else FirstByteTimeout

"""AttemptWatch: one exchange with a deployment, as its health observes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.deployments.health.ejection import FailureKind


class AttemptWatchOwner(Protocol):
    """Health of the deployment whose exchanges are watched."""

    @property
    def least_patience_s(self) -> float:
        """Seconds of silence below which nothing counts as a stall."""
        ...

    def patience_s(self, expected_s: float) -> float:
        """Return the seconds of silence that count as a stall where a token was expected within `expected_s`."""
        ...

    @property
    def num_stalls(self) -> int:
        """Number of stalls since the deployment last sent anything."""
        ...

    def plain_patience_s(self, bound_s: float, num_stalls: int) -> float:
        """Return the seconds of silence that count as a stall where a whole response is due within `bound_s`."""
        ...

    def note_success(self, now: float, *, since: float | None = None, is_probe: bool = False) -> None:
        """Record an exchange that succeeded."""
        ...

    def note_failure(
        self, now: float, kind: FailureKind, *, since: float | None = None, is_probe: bool = False
    ) -> None:
        """Record an exchange that failed."""
        ...

    def leave(self, attempt_watch: AttemptWatch) -> None:
        """Remove an exchange that has ended."""
        ...


class ResponseProgress(Protocol):
    """Response whose progress is watched."""

    num_progress: int
    """Number of pieces so far that count as progress."""

    @property
    def is_paused(self) -> bool:
        """True if the gateway itself paused reading."""
        ...


class AttemptWatch:
    """Watch over one exchange; end it once by `succeeded`, `failed` or `dropped`. A second end does nothing."""

    __slots__ = (
        "_bound_s",
        "_health",
        "_num_seen",
        "_num_stalls",
        "active_at",
        "began_at",
        "is_probe",
        "on_stalled",
        "patience_s",
        "response",
    )

    def __init__(self, health: AttemptWatchOwner, now: float, *, is_probe: bool) -> None:
        self._health: AttemptWatchOwner | None = health
        self._num_seen = self._num_stalls = 0
        self._bound_s: Callable[[], float] | None = None
        self.began_at = now
        self.active_at = now
        """Last instant at which it began or was seen to progress."""
        self.is_probe = is_probe
        """True for the one request that probes an ejected deployment."""
        self.patience_s: float | None = None
        """Longest normal silence of the deployment while this exchange waits, in seconds; None for no bound."""
        self.response: ResponseProgress | None = None
        """Response under way; set once the request is sent."""
        self.on_stalled: Callable[[], None] | None = None
        """Callback for a stall of the deployment while this exchange waits for its first token."""

    def succeeded(self, now: float) -> None:
        """End with a whole response, which may be an error caused by the client."""
        health = self._end()
        if health is not None:
            health.note_success(now, since=self.began_at, is_probe=self.is_probe)

    def failed(self, now: float, kind: FailureKind) -> None:
        """End with a failure of the deployment."""
        self.has_moved(now)
        health = self._end()
        if health is not None:
            health.note_failure(now, kind, since=self.active_at, is_probe=self.is_probe)

    def dropped(self) -> None:
        """End without a verdict: the client left, or another attempt was faster."""
        if self._health is not None:
            self._end()

    def expect(self, seconds: float) -> None:
        """Expect a token within `seconds`; silence of a multiple of that is a stall."""
        if self._health is not None:
            self.patience_s = self._health.patience_s(seconds)

    def expect_whole(self, bound_s: Callable[[], float]) -> None:
        """Expect a whole response within a bound in seconds; silence beyond it is a stall.

        The bound is computed only after the shortest patience, which few responses take.
        """
        if self._health is not None:
            self._bound_s, self._num_stalls = bound_s, self._health.num_stalls

    def is_overdue(self, idle_s: float) -> bool:
        """Return whether a silence of `idle_s` seconds is too long for this exchange."""
        health = self._health
        if health is not None and self._bound_s is not None and idle_s > health.least_patience_s:
            self.patience_s, self._bound_s = health.plain_patience_s(self._bound_s(), self._num_stalls), None
        return self.patience_s is not None and idle_s > self.patience_s

    def leave(self) -> None:
        """Report the stall to the exchange, unless something has come for it already."""
        if self._num_seen == 0 and self.on_stalled is not None:
            self.on_stalled()

    def has_moved(self, now: float) -> bool:
        """Return whether progress was made since the last call; reading that the gateway paused counts as progress."""
        response = self.response
        if response is None:
            return False
        num_before, self._num_seen = self._num_seen, response.num_progress
        if self._num_seen != num_before:
            self.active_at = now
            return True
        return response.is_paused

    def note_return(self) -> None:
        """Take what has come so far as of the time before the deployment's return; a probe proves nothing any more."""
        self.is_probe = False
        if self.response is not None:
            self._num_seen = self.response.num_progress

    def _end(self) -> AttemptWatchOwner | None:
        health, self._health = self._health, None
        self.on_stalled = self._bound_s = None  # they reference the holder of this watch
        if health is not None:
            health.leave(self)
        return health
